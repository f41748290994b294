"""Whole bootstraps: ours beside their inputs, and the reference's where its files are at hand.

Source: bootstrap.md section 9. The differences allowed to the reference's are listed below.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.build import build_bootstrap
from bootstrap.decode import decode_fields, without_zeros
from bootstrap.schema import CLUSTER_NAME, PROXY_CONFIG
from tests.fakes.bootstrap_cases import (
    CASES,
    GOLDEN,
    WITHOUT_CONFIG,
    case_folder,
    case_input,
    case_inputs,
)

REFERENCE = Path(__file__).parents[2].parent / "shared" / "data" / "bootstrap"

#: Of the reference's harness: written by its template, not by what a case is about.
REFERENCE_PATHS = {
    "/test-path/lightstep_access_token.txt": "CONFIG_PATH/lightstep_access_token.txt",
    "/tmp/XDS": "CONFIG_PATH/XDS",  # noqa: S108 - written by nobody
}


def build(name: str) -> object:
    return json.loads(build_bootstrap(case_inputs(name))[0])


@pytest.mark.parametrize("name", CASES)
def test_a_case_yields_its_golden_bootstrap(name: str, *, update_golden: bool) -> None:
    path = GOLDEN / f"{name}.json"

    built = build(name)

    if update_golden:
        path.write_text(json.dumps(built, indent=2, sort_keys=True) + "\n")
    assert built == json.loads(path.read_text())


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_the_references(name: str) -> None:
    golden = REFERENCE / f"{name}_golden.json"
    if not golden.exists():
        pytest.skip(f"the reference's files are not at {REFERENCE}")
    folder = case_folder(name)

    ours = substituted(build(name), {folder: "CONFIG_PATH"})

    assert ours == substituted(
        json.loads(golden.read_text()), REFERENCE_PATHS | {folder: "CONFIG_PATH"}
    )


@pytest.mark.parametrize("name", sorted(set(CASES) - set(WITHOUT_CONFIG)))
def test_a_cases_input_is_the_references(name: str) -> None:
    path = REFERENCE / f"{name}.proxycfg"
    if not path.exists():
        pytest.skip(f"the reference's files are not at {REFERENCE}")
    problems: list[str] = []
    # The harness sets the metadata that the environment holds, and the path.
    added = {"proxyMetadata"}

    parsed = message(tokens(path.read_text()))
    decoded = decode_fields(parsed, PROXY_CONFIG, (CLUSTER_NAME,), "", problems)

    ours = {key: value for key, value in case_input(name)["document"].items() if key not in added}
    assert not problems
    assert without_zeros(decoded, PROXY_CONFIG) == ours | {"configPath": "/etc/istio/proxy"}


def substituted(value: object, replacements: dict[str, str]) -> object:
    """Return the data with the longest replacements made in every text."""
    text = json.dumps(value)
    for old in sorted(replacements, key=len, reverse=True):
        text = text.replace(old, replacements[old])
    loaded: object = json.loads(text)
    return loaded


def tokens(text: str) -> Iterator[str]:
    """Yield the tokens of protobuf's text format."""
    uncommented = re.sub(r"(?m)^\s*#.*$", "", text)
    yield from re.findall(r'"[^"]*"|[{}\[\],:]|[\w.]+', uncommented)


def message(stream: Iterator[str]) -> dict[str, object]:
    """Return a message as JSON would write it; durations and wrappers lose their shell."""
    fields: dict[str, object] = {}
    for name in stream:
        if name == "}":
            break
        if name != ",":
            fields[name] = field_value(next(stream), stream)
    return fields


def field_value(word: str, stream: Iterator[str]) -> object:
    if word == ":":
        return field_value(next(stream), stream)
    if word == "{":
        inner = message(stream)
        if inner.keys() == {"seconds"}:
            return f"{inner['seconds']}s"
        return inner["value"] if inner.keys() == {"value"} else inner
    if word == "[":
        items = [field_value(item, stream) for item in iter(lambda: next(stream), "]")]
        pairs = [item for item in items if isinstance(item, dict)]
        return {pair["key"]: pair["value"] for pair in pairs} if pairs else items
    return word.strip('"')
