"""Flags: the rules of the command line, the environment below it, the help text."""

import pytest

from iptables.flags import (
    GLOBAL_FLAGS,
    Flag,
    Parsed,
    UsageError,
    parse_bool,
    parse_duration,
    parse_flags,
    parse_int,
    parse_uint16,
    render_help,
)

FLAGS = (
    Flag("port", "string", "15001", "where to", short="p", env=("PORT",)),
    Flag("cidr", "string", "", "which", short="x"),
    Flag("dry-run", "bool", default=False, help="do nothing", short="n", env=("DRY_RUN", "DRY")),
    Flag("verbose", "bool", default=True, help="say more", short="v"),
    Flag("probe-port", "uint16", 15002, "which port", env=("PROBE_PORT",)),
    Flag("timeout", "duration", 5.0, "how long", env=("TIMEOUT",)),
    Flag("level", "int", 0, "how much", short="l"),
    Flag("target", "strings", ("stdout",), "where", short="t"),
)


def parse(*argv: str, unknown_ok: bool = False) -> Parsed:
    return parse_flags(FLAGS, argv, unknown_ok=unknown_ok)


def test_without_arguments_every_flag_has_its_default() -> None:
    parsed = parse()

    assert parsed.values == {flag.name: flag.default for flag in FLAGS}
    assert parsed.given == frozenset()
    assert not parsed.help


@pytest.mark.parametrize(
    "argv", [("--port", "1"), ("--port=1",), ("-p", "1"), ("-p1",), ("-p=1",)], ids=" ".join
)
def test_a_value_may_follow_in_every_usual_way(argv: tuple[str, ...]) -> None:
    parsed = parse(*argv)

    assert parsed.text("port") == "1"
    assert parsed.given == {"port"}


@pytest.mark.parametrize("value", ["", "-1", "--port", "a=b", "--"])
def test_a_value_may_be_anything(value: str) -> None:
    assert parse("-x", value).text("cidr") == value
    assert parse("--cidr", value).text("cidr") == value
    assert parse(f"--cidr={value}").text("cidr") == value
    assert parse(f"-x={value}").text("cidr") == value


def test_a_bool_takes_its_value_only_with_an_equals_sign() -> None:
    assert parse("--dry-run", "false").is_on("dry-run")
    assert parse("--dry-run", "false").positionals == ("false",)
    assert not parse("--verbose=false").is_on("verbose")
    assert not parse("-v=0").is_on("verbose")


def test_short_bools_share_a_word_and_may_end_in_a_flag_with_a_value() -> None:
    parsed = parse("-nvp15", "-np", "16")

    assert parsed.is_on("dry-run")
    assert parsed.text("port") == "16"


def test_the_last_of_a_repeated_flag_wins() -> None:
    assert parse("-p", "1", "--port=2").text("port") == "2"


def test_a_repeatable_flag_accumulates_and_replaces_its_default() -> None:
    assert parse().texts("target") == ("stdout",)
    assert parse("--target=a,b", "-t", "c").texts("target") == ("a,b", "c")


def test_flags_and_positionals_mix_until_two_dashes() -> None:
    parsed = parse("init", "-p", "1", "-", "--", "-n", "--nothing")

    assert parsed.positionals == ("init", "-", "-n", "--nothing")
    assert parsed.given == {"port"}


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (("--nothing",), "--nothing"),
        (("--po", "1"), "--po"),
        (("-q",), "-q"),
        (("---port=1",), "---port"),
        (("--=1",), "--"),
        (("--port",), "--port"),
        (("-p",), "-p"),
        (("--probe-port=65536",), "--probe-port='65536'"),
        (("--timeout", "5"), "--timeout='5'"),
        (("--dry-run=maybe",), "--dry-run='maybe'"),
        (("--level=x",), "--level='x'"),
        (("--help", "--nothing"), "--nothing"),
    ],
    ids=str,
)
def test_what_is_not_understood_is_named_in_one_line(argv: tuple[str, ...], named: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(*argv)

    assert named in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("argv", "positionals"),
    [
        (("--old", "sidecar"), ()),
        (("--old=1", "sidecar"), ("sidecar",)),
        (("--old", "-p", "1", "sidecar"), ("sidecar",)),
        (("--old",), ()),
        (("-q", "sidecar"), ()),
        (("-q=1", "sidecar"), ("sidecar",)),
        (("-qn", "sidecar"), ()),
    ],
    ids=str,
)
def test_unknown_flags_can_be_skipped_with_their_value(
    argv: tuple[str, ...], positionals: tuple[str, ...]
) -> None:
    assert parse(*argv, unknown_ok=True).positionals == positionals


def test_a_bad_value_of_a_known_flag_is_an_error_where_unknown_flags_are_skipped() -> None:
    with pytest.raises(UsageError):
        parse("--timeout=5", unknown_ok=True)


@pytest.mark.parametrize("argv", [("-h",), ("--help",), ("-nh",), ("--port=1", "--help=true")])
def test_help_can_be_asked_for(argv: tuple[str, ...]) -> None:
    parsed = parse(*argv)

    assert parsed.help
    assert "help" not in parsed.values


def test_the_environment_lies_between_default_and_command_line() -> None:
    environ = {"PORT": "1", "DRY_RUN": "false", "DRY": "1", "TIMEOUT": "300ms", "PROBE_PORT": "07"}

    parsed = parse_flags(FLAGS, ["-p", "2"], environ=environ)

    assert parsed.text("port") == "2"
    assert parsed.is_on("dry-run")
    assert parsed.seconds("timeout") == 0.3
    assert parsed.number("probe-port") == 7
    assert parsed.given == {"port"}
    assert parsed.warnings == ()


def test_an_unusable_variable_warns_turns_a_bool_off_and_else_keeps_the_default() -> None:
    """Source: traffic-capture.md section 17.15."""
    environ = {"PORT": "", "DRY_RUN": "true", "DRY": "maybe", "TIMEOUT": "5", "PROBE_PORT": "70000"}

    parsed = parse_flags(FLAGS, [], environ=environ)

    assert parsed.text("port") == ""
    assert not parsed.is_on("dry-run")
    assert parsed.seconds("timeout") == 5.0
    assert parsed.number("probe-port") == 15002
    assert [line.partition(":")[0] for line in parsed.warnings] == [
        "DRY='maybe'",
        "PROBE_PORT='70000'",
        "TIMEOUT='5'",
    ]
    assert parsed.warnings[2].endswith("using 5s")


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("-7", -7), ("+7", 7), ("0x1F", 31), ("0b101", 5), ("0o17", 15), ("017", 15),
     ("0", 0), ("1_000", 1000), ("9223372036854775807", 2**63 - 1)],
)  # fmt: skip
def test_integers_are_written_as_in_go(text: str, number: int) -> None:
    assert parse_int(text) == number


@pytest.mark.parametrize(
    "text", ["", " 7", "7 ", "x", "08", "0x", "--7", "-", "1.0", "٣", 19 * "9"]
)
def test_other_integers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_int(text)


@pytest.mark.parametrize("text", ["-1", "+1", "65536", ""])
def test_a_uint16_has_no_sign_and_an_upper_bound(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_uint16(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5.0), ("1m30s", 90.0), ("500ms", 0.5), ("-2h", -7200.0), ("0", 0.0), (".5s", 0.5)],
)
def test_durations_are_written_as_in_go(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "5d"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration(text)


def test_bools_are_written_as_in_go() -> None:
    assert all(parse_bool(text) for text in ("1", "t", "T", "TRUE", "true", "True"))
    assert not any(parse_bool(text) for text in ("0", "f", "F", "FALSE", "false", "False"))
    with pytest.raises(ValueError, match="expected 'true' or 'false'"):
        parse_bool("yes")


def test_reading_a_value_as_another_kind_is_our_bug() -> None:
    with pytest.raises(TypeError, match="--port is no int"):
        parse().number("port")


def test_help_lists_each_flag_once_with_all_that_is_known_of_it() -> None:
    text = render_help("tool [flags]", "Does it.", (*FLAGS, *GLOBAL_FLAGS))

    for flag in (*FLAGS, *GLOBAL_FLAGS):
        assert text.count(f"--{flag.name}") == 1
        assert flag.help in " ".join(text.split())
    assert text.startswith("Does it.\n\nUsage:\n  tool [flags]\n")
    assert "  -p, --port string\n        where to; default 15001; variable PORT\n" in text
    assert "default false; variable DRY_RUN, then DRY\n" in text
    assert "      --timeout duration\n        how long; default 5s" in text
    assert "default stdout\n" in text
    assert "  -x, --cidr string\n        which\n" in text
    assert "  -h, --help\n" in text


def test_help_is_wrapped_between_words() -> None:
    help_text = f"read {'x' * 56} --dual-stack, or {'y' * 90}"

    text = render_help("tool", help_text, (Flag("a", "string", "", help_text),))

    summary, _, flags = text.partition("Usage:")
    assert f"read {'x' * 56} --dual-stack, or\n{'y' * 90}\n" in summary
    assert f"        read {'x' * 56}\n        --dual-stack, or\n        {'y' * 90}\n" in flags
