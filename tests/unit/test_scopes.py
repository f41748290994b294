import pytest

from agent.scopes import grpc_verbosity, parse_log
from iptables.flags import GLOBAL_FLAGS, parse_flags


def test_the_flags_become_a_branch() -> None:
    argv = (
        "--log_output_level=default:debug --log_target=stderr --log_target=stdout "
        "--log_target=stderr --log_as_json --log_caller=dns,all"
    )

    settings = parse_log(parse_flags(GLOBAL_FLAGS, argv.split()), [])

    assert settings.levels == {"default": "debug", "grpc": "none"}
    assert settings.targets == ("stderr", "stdout")
    assert settings.as_json
    assert settings.callers == {"dns", "all"}


def test_a_level_that_is_none_is_an_error() -> None:
    errors: list[str] = []

    parse_log(parse_flags(GLOBAL_FLAGS, ["--log_output_level=dns:loud"]), errors)

    assert len(errors) == 1


@pytest.mark.parametrize(
    ("argv", "verbosity"),
    [
        ((), "NONE"),
        (("--log_output_level=debug",), "NONE"),
        (("--log_output_level=grpc:debug",), "DEBUG"),
        (("--log_output_level=grpc:warn",), "ERROR"),
        (("--log_output_level=all:info",), "INFO"),
        (("--log_output_level=all:fatal",), "NONE"),
    ],
)
def test_grpc_itself_is_silent_unless_asked(argv: tuple[str, ...], verbosity: str) -> None:
    levels = parse_log(parse_flags(GLOBAL_FLAGS, argv), []).levels

    assert grpc_verbosity(levels) == verbosity
