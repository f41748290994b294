"""A real Envoy checks what `agent bootstrap` prints."""

import json
from pathlib import Path

import envoy
import pytest

from agent.errors import EnvoyError
from agent.lifecycle.command_line import EnvoySettings
from agent.preview.process import validate

pytestmark = pytest.mark.envoy

ENVOY = EnvoySettings(binary=str(Path(envoy.__file__).with_name("_bin") / "envoy"))


def test_a_configuration_that_envoy_takes_is_confirmed(tmp_path: Path) -> None:
    said = validate(ENVOY, json.dumps({"admin": {}}), spare_directory=str(tmp_path))

    assert said.endswith("OK\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ['{"admin": 1}', "static_resources: 1"])
def test_a_configuration_that_envoy_refuses_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(EnvoyError, match=r"refuses this: .* error initializing"):
        validate(ENVOY, text, spare_directory=str(tmp_path))


def test_an_override_is_checked_with_it(tmp_path: Path) -> None:
    bad = ENVOY._replace(config_yaml='{"stats_flush_interval":"soon"}')

    with pytest.raises(EnvoyError, match="stats_flush_interval"):
        validate(bad, "{}", spare_directory=str(tmp_path))
