import pytest

from agent.status.merge.families import (
    Family,
    claims,
    families_of,
    header,
    modern_help,
    sample_names,
    written,
)


def kinds(declared: Family, *, openmetrics: bool, as_openmetrics: bool) -> dict[str, str]:
    found = families_of(declared, openmetrics=openmetrics, as_openmetrics=as_openmetrics)
    return {
        name.decode(): f"{family.name.decode()} {family.kind}" for name, family in found.items()
    }


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("counter", {"a_total": "a_total counter", "a_created": "a_created gauge"}),
        ("gauge", {"a": "a gauge"}),
        (
            "histogram",
            {
                "a_bucket": "a histogram",
                "a_count": "a histogram",
                "a_sum": "a histogram",
                "a_created": "a_created gauge",
            },
        ),
        (
            "summary",
            {
                "a": "a summary",
                "a_count": "a summary",
                "a_sum": "a summary",
                "a_created": "a_created gauge",
            },
        ),
        (
            "gaugehistogram",
            {
                "a_bucket": "a_bucket unknown",
                "a_gcount": "a_gcount unknown",
                "a_gsum": "a_gsum unknown",
            },
        ),
        ("info", {"a_info": "a_info gauge"}),
        ("stateset", {"a": "a gauge"}),
        ("unknown", {"a": "a unknown"}),
    ],
)
def test_openmetrics_in_text_keeps_the_names_of_samples(
    kind: str, expected: dict[str, str]
) -> None:
    family = Family(b"a", kind)

    assert kinds(family, openmetrics=True, as_openmetrics=False) == expected
    names = kinds(family, openmetrics=True, as_openmetrics=True)
    assert names == dict.fromkeys(expected, f"a {kind}")


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("a_total", "counter", {"a_total": "a counter"}),
        ("a", "counter", {"a": "a unknown"}),
        ("_total", "counter", {"_total": "_total unknown"}),
        ("a_total", "gauge", {"a_total": "a_total gauge"}),
        ("a", "untyped", {"a": "a unknown"}),
        (
            "a",
            "histogram",
            {"a_bucket": "a histogram", "a_count": "a histogram", "a_sum": "a histogram"},
        ),
        (
            "a",
            "summary",
            {"a": "a summary", "a_count": "a summary", "a_sum": "a summary"},
        ),
    ],
)
def test_text_in_openmetrics_keeps_them_too(name: str, kind: str, expected: dict[str, str]) -> None:
    family = Family(name.encode(), kind)

    assert kinds(family, openmetrics=False, as_openmetrics=True) == expected
    names = kinds(family, openmetrics=False, as_openmetrics=False)
    assert set(names) == set(expected)


def test_help_is_escaped_as_the_format_wants_it() -> None:
    old = Family(b"a", "gauge", rb'say "no\\" \n \x')
    new = Family(b"a", "gauge", rb"say \"no\\\" \n \x", b"bytes")

    made_new = families_of(old, openmetrics=False, as_openmetrics=True)[b"a"]
    made_old = families_of(new, openmetrics=True, as_openmetrics=False)[b"a"]

    assert made_new.help == rb"say \"no\\\" \n \\x"
    assert made_old == Family(b"a", "gauge", rb'say "no\\" \n \\x')
    assert modern_help(b"plain") == b"plain"


def test_a_family_claims_the_names_of_its_samples_and_its_own() -> None:
    counter = Family(b"a", "counter")

    assert sample_names(counter, openmetrics=True) == {b"a_total", b"a_created"}
    assert claims(counter, openmetrics=True) == {b"a", b"a_total", b"a_created"}
    assert claims(counter, openmetrics=False) == {b"a"}
    assert claims(Family(b"a"), openmetrics=False) == {b"a"}


def test_a_header_says_what_is_known() -> None:
    family = Family(b"a_bytes", "gauge", b"Help.", b"bytes")

    assert header(family, openmetrics=True) == (
        b"# HELP a_bytes Help.\n# TYPE a_bytes gauge\n# UNIT a_bytes bytes\n"
    )
    assert header(family, openmetrics=False) == b"# HELP a_bytes Help.\n# TYPE a_bytes gauge\n"
    assert header(Family(b"a"), openmetrics=True) == b""


def test_a_name_with_other_characters_is_in_quotes_and_always_has_a_type() -> None:
    family = Family(b'a.b"c\n')

    assert written(b"a:b") == b"a:b"
    assert header(family, openmetrics=True) == b'# TYPE "a.b\\"c\\n" unknown\n'
    assert header(family, openmetrics=False) == b'# TYPE "a.b\\"c\\n" untyped\n'
