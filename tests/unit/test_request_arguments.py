import pytest

from agent.request.arguments import (
    DEBUG_PORTS,
    QUIT_URL,
    parse_request,
    parse_wait,
    request_help,
    request_url,
    wait_help,
)
from agent.request.settings import CommandError, LogSettings, RequestSettings, WaitSettings


def a_request(*argv: str) -> RequestSettings:
    settings = parse_request(argv)
    assert settings is not None
    return settings


def test_wait_without_flags_is_what_the_hook_does() -> None:
    settings = parse_wait([])

    assert settings is not None
    assert vars(settings.log) == vars(LogSettings())
    hook = WaitSettings(quit_url=QUIT_URL)
    assert {**vars(settings), "log": None} == {**vars(hook), "log": None}


def test_wait_takes_each_value_from_its_flag() -> None:
    argv = ["--url=http://h/", "--timeoutSeconds", "5", "--requestTimeoutMillis=250"]
    argv += ["--periodMillis", "100", "--log_output_level=xdsproxy:debug,all:warn"]
    argv += ["--log_as_json", "--log_target=stderr", "--log_target=/x", "surplus"]

    settings = parse_wait(argv)

    assert settings is not None
    assert vars(settings.log) == {
        "threshold": "warn",
        "targets": ("stderr", "/x"),
        "as_json": True,
    }
    assert {**vars(settings), "log": None} == {
        "url": "http://h/",
        "timeout_seconds": 5,
        "request_timeout_seconds": 0.25,
        "period_seconds": 0.1,
        "log": None,
        "command": (),
        "timeout_fatal": True,
        "quit_url": QUIT_URL,
    }


def test_what_stands_behind_the_dashes_is_a_command() -> None:
    settings = parse_wait(
        ["--timeout=90s", "--timeout-fatal=false", "--no-quit", "--", "sh", "--", "--url=x"]
    )

    assert settings is not None
    assert settings.command == ("sh", "--", "--url=x")
    assert (settings.timeout_seconds, settings.timeout_fatal) == (90, False)
    assert settings.quit_url == ""


def test_without_dashes_there_is_no_command() -> None:
    settings = parse_wait(["surplus"])

    assert settings is not None
    assert settings.command == ()


def test_request_takes_method_path_and_body() -> None:
    settings = a_request("POST", "--debug-port", "15020", "drain", "text\udcff", "surplus")

    assert (settings.method, settings.path, settings.body) == ("POST", "drain", b"text\xff")
    assert settings.debug_port == 15020


def test_the_body_may_be_left_out() -> None:
    settings = a_request("GET", "stats")

    assert (settings.body, settings.debug_port) == (b"", 15000)


def test_the_log_of_request_stays_off_stdout() -> None:
    assert a_request("GET", "x").log.targets == ("stderr",)
    assert a_request("GET", "x", "--log_target=stdout").log.targets == ("stderr",)
    assert a_request("GET", "x", "--log_target=/log").log.targets == ("/log",)


@pytest.mark.parametrize("argv", [[], ["GET"]])
def test_request_needs_method_and_path(argv: list[str]) -> None:
    with pytest.raises(CommandError, match=r"requires at least 2 arg.*: METHOD PATH"):
        parse_request(argv)


@pytest.mark.parametrize("flag", ["--old", "--debug-port=x", "--log_output_level=a:b:c"])
def test_what_cannot_be_understood_is_refused(flag: str) -> None:
    with pytest.raises(CommandError, match=flag.partition("=")[0]):
        parse_request(["GET", "x", flag])


@pytest.mark.parametrize("name", ["url", "quit-url"])
def test_what_no_waiting_makes_a_url_is_refused(name: str) -> None:
    with pytest.raises(CommandError, match=f"--{name}: url 'https://h/': expected http://host"):
        parse_wait([f"--{name}=https://h/"])
    assert parse_wait(["--no-quit", "--quit-url=x"])


def test_help_is_no_error() -> None:
    assert parse_wait(["--help"]) is None
    assert parse_request(["-h"]) is None
    assert "--periodMillis int\n" in wait_help()
    assert "agent request METHOD PATH [BODY]" in request_help()


@pytest.mark.parametrize("port", DEBUG_PORTS)
def test_the_usual_ports_may_be_asked(port: int) -> None:
    settings = a_request("GET", "stats?usedonly", f"--debug-port={port}")

    assert request_url(settings, ()) == f"http://localhost:{port}/stats?usedonly"


@pytest.mark.parametrize(
    ("path", "sent"), [("/stats", "/stats"), ("stats", "/stats"), ("//stats", "//stats")]
)
def test_one_leading_slash_is_dropped(path: str, sent: str) -> None:
    assert request_url(a_request("GET", path), ()) == f"http://localhost:15000{sent}"


def test_the_ports_that_the_pod_configures_may_be_asked() -> None:
    settings = a_request("POST", "drain", "--debug-port=15030")

    assert request_url(settings, (15000, 15030)) == "http://localhost:15030/drain"


def test_any_other_port_may_not_be_asked() -> None:
    expected = r"debug port 80 is not in allowed list \[15000 15004 15020 15021 15030\]"

    with pytest.raises(CommandError, match=expected):
        request_url(a_request("GET", "x", "--debug-port=80"), (15000, 15030))
