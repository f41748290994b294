"""Source: status-lifecycle.md section 11.2; Kubernetes' label selectors."""

import pytest

from agent.inject.selectors import Selector, parse_selector

LABELS = {"app": "web", "tier": ""}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "gone": "x"}}, False),
        ({"matchLabels": {"tier": ""}}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "web"]}]}, True),
        ({"matchExpressions": [{"key": "gone", "operator": "In", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "gone", "operator": "NotIn", "values": ["a"]}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "gone", "operator": "Exists", "values": None}]}, False),
        ({"matchExpressions": [{"key": "gone", "operator": "DoesNotExist"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_a_selector_selects_by_labels(selector: object, *, matches: bool) -> None:
    assert parse_selector(selector).matches(LABELS) is matches


def test_one_without_conditions_is_empty() -> None:
    assert parse_selector({"matchLabels": None}) == Selector()
    assert Selector().is_empty
    assert not parse_selector({"matchLabels": {"a": "b"}}).is_empty


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (5, "expected an object with matchLabels"),
        ({"matchLabels": ["a"]}, "expected matchLabels to be an object"),
        ({"matchExpressions": {"a": "b"}}, "expected matchLabels to be an object"),
        ({"matchExpressions": ["x"]}, "expected a condition"),
        ({"matchExpressions": [{"key": "a", "operator": "in"}]}, "operator='in'"),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, "expected values for operator In"),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]},
            "expected no values",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": "x"}]},
            "expected values to be a list",
        ),
        ({"matchExpressions": [{"operator": "Exists"}]}, "key=None: expected the name of a label"),
        ({"matchLabels": {"-a": "b"}}, "key='-a'"),
        ({"matchLabels": {"A/b/c": "b"}}, "key='A/b/c'"),
        ({"matchLabels": {"a": 5}}, "value=5: expected the value of a label; put it in quotes"),
        ({"matchLabels": {"a": "b c"}}, "value='b c'"),
    ],
)
def test_what_is_no_selector_is_refused(selector: object, expected: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        parse_selector(selector)

    assert expected in str(caught.value)
