"""Source: status-lifecycle.md sections 11.2 and 11.3."""

from typing import Any

import pytest

from agent.inject.configuration import Configuration, parse_configuration


def parse(document: dict[str, Any]) -> tuple[Configuration, list[str], list[str]]:
    return parse_configuration(document, source="config")


def test_without_a_document_every_pod_gets_a_sidecar() -> None:
    assert parse({}) == (Configuration(), [], [])
    assert parse({"defaultTemplates": []})[0].default_templates == ("sidecar",)


def test_a_document_is_read() -> None:
    found, problems, warnings = parse(
        {
            "policy": "disabled",
            "defaultTemplates": ["both"],
            "aliases": {"both": ["sidecar", "extra"]},
            "templates": {"extra": "spec: {hostname: x}", "nothing": ""},
            "neverInjectSelector": [{"matchLabels": {"a": "b"}}],
            "injectedAnnotations": {"note": "x"},
        }
    )

    assert (problems, warnings) == ([], [])
    assert found.policy == "disabled"
    assert found.default_templates == ("both",)
    assert found.aliases == {"both": ("sidecar", "extra")}
    assert found.templates == {"extra": {"spec": {"hostname": "x"}}, "nothing": {}}
    assert found.never_inject[0].matches({"a": "b"})
    assert found.injected_annotations == {"note": "x"}


def test_a_text_with_actions_is_not_run() -> None:
    found, problems, warnings = parse({"templates": {"sidecar": "{{ x }}", "mine": "a: {{ y }}"}})

    assert problems == []
    assert found.templates == {"mine": None}
    actions = "has actions in '{{', which are not run"
    assert warnings == [
        f"config: templates['sidecar'] {actions}; the built-in one is used",
        f"config: templates['mine'] {actions}; pods that ask for it are refused",
    ]


def test_a_plain_text_replaces_a_built_in_template() -> None:
    assert parse({"templates": {"sidecar": "metadata: {}"}})[0].templates == {
        "sidecar": {"metadata": {}}
    }


def test_selectors_that_cannot_be_used_are_skipped() -> None:
    found, problems, warnings = parse({"alwaysInjectSelector": [5, {"matchLabels": {"a": "b"}}]})

    assert problems == []
    assert len(found.always_inject) == 1
    (warning,) = warnings
    assert warning.startswith(
        "config: alwaysInjectSelector[0]: expected an object with matchLabels"
    )
    assert warning.endswith("; it is skipped")


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"templates": []}, "config: templates=<list>: expected an object"),
        ({"templates": {"a": 5}}, "config: templates['a']=5: expected text: a partial pod in YAML"),
        ({"templates": {"a": "- x"}}, "config: templates['a']=<list>: expected a partial pod"),
        ({"templates": {"a": "x: ["}}, "config: templates['a']: expected JSON or YAML"),
        ({"aliases": {"a": "b"}}, "config: aliases['a']='b': expected a list of names"),
        ({"defaultTemplates": "a"}, "config: defaultTemplates='a': expected a list of names"),
        ({"neverInjectSelector": {}}, "config: neverInjectSelector=<dict>: expected a list"),
        ({"injectedAnnotations": {"a": 1}}, "config: injectedAnnotations['a']=1: expected text"),
    ],
)
def test_what_cannot_be_used_is_named(document: dict[str, Any], problem: str) -> None:
    problems = parse(document)[1]

    assert len(problems) == 1
    assert problems[0].startswith(problem)
