import pytest

from agent.scopes import level_of, parse_levels, parse_log
from iptables.flags import GLOBAL_FLAGS, parse_flags


def test_levels_apply_from_left_to_right() -> None:
    errors: list[str] = []

    levels = parse_levels("default:info,debug,xdsproxy:error,xdsproxy:warn", errors)

    assert levels == {"default": "debug", "xdsproxy": "warn"}
    assert errors == []


def test_the_scope_all_sets_every_scope() -> None:
    levels = parse_levels("xdsproxy:debug,all:error,dns:info", [])

    assert [level_of(levels, name) for name in ("xdsproxy", "default", "dns")] == [
        "error",
        "error",
        "info",
    ]


def test_a_scope_that_is_not_named_has_the_default_level() -> None:
    assert level_of({"default": "warn"}, "dns") == "warn"
    assert level_of({}, "dns") == "info"


@pytest.mark.parametrize("item", ["default:loud", "a:b:info", "loud", ""])
def test_an_item_that_is_no_level_is_an_error(item: str) -> None:
    errors: list[str] = []

    parse_levels(item, errors)

    assert len(errors) == 1
    assert repr(item) in errors[0]


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
