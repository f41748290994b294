import json
import tomllib
from pathlib import Path

import pytest
import yaml

from agent.version import AGENT_VERSION, BUILD, Build, version_line, version_text

FIELDS = {
    "version": "1.2.3",
    "revision": "abc",
    "golang_version": "python3",
    "status": "Clean",
    "tag": "t",
}
EXAMPLE = Build(**FIELDS)


def test_the_package_version_is_that_of_its_metadata() -> None:
    metadata = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text())

    assert metadata["project"]["version"] == AGENT_VERSION
    assert BUILD.tag == BUILD.revision == f"mesh-agent-{AGENT_VERSION}"
    assert version_line() == f"{BUILD.version}-{BUILD.tag}-unknown"


def test_istiod_can_parse_the_version() -> None:
    assert all(part.isdigit() for part in BUILD.version.split("."))


def test_text_is_one_line() -> None:
    assert version_text("", short=True, build=EXAMPLE) == "client version: 1.2.3"
    assert version_text("", short=False, build=EXAMPLE) == (
        'client version: version.BuildInfo{Version:"1.2.3", GitRevision:"abc", '
        'GolangVersion:"python3", BuildStatus:"Clean", GitTag:"t"}'
    )


def test_json_is_indented_by_two() -> None:
    text = version_text("json", short=True, build=EXAMPLE)

    assert json.loads(text) == {"clientVersion": FIELDS}
    assert text.splitlines()[1:3] == ['  "clientVersion": {', '    "version": "1.2.3",']


def test_yaml_says_the_same() -> None:
    assert yaml.safe_load(version_text("yaml", short=False)) == {"clientVersion": BUILD._asdict()}


def test_any_other_output_is_refused() -> None:
    with pytest.raises(ValueError, match="--output must be 'yaml' or 'json'"):
        version_text("xml", short=False)


def test_the_log_begins_with_version_revision_and_status() -> None:
    assert version_line(EXAMPLE) == "1.2.3-abc-Clean"
