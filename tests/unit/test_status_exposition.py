import pytest

from agent.status.exposition import (
    APPLICATION_TYPES,
    ENVOY_TYPES,
    FALLBACK_ACCEPT,
    FORMATS,
    HELD_BYTES,
    TEXT_FORMAT,
    Format,
    Lines,
    common_format,
    negotiate,
    parse_media_type,
    response_format,
    strip_terminator,
    whole_lines,
)

OM0, OM1 = FORMATS["0.0.1"], FORMATS["1.0.0"]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("text/plain", ("text/plain", ())),
        (" Text/Plain ; B=2;a=1 ;", ("text/plain", (("a", "1"), ("b", "2")))),
        ('a/b; c="d \\" e"', ("a/b", (("c", 'd " e'),))),
        ("*", ("*", ())),
    ],
)
def test_a_media_type_is_parsed(text: str, parsed: tuple[str, tuple[tuple[str, str], ...]]) -> None:
    assert parse_media_type(text) == parsed


@pytest.mark.parametrize("text", ["", "/", "a/", "a/b;c", "a/b;c=", "a/b c", "a/b;c=1;C=2", ";a=b"])
def test_what_is_no_media_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="media type "):
        parse_media_type(text)


PROMETHEUS = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;"
    "q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "application", "envoy"),
    [
        (
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text; q=0.2; version=1.0.0,text/plain; q=0.1; version=0.0.4",
            "text/plain; q=0.1; version=0.0.4",
        ),
        (
            PROMETHEUS,
            (
                "application/openmetrics-text; q=0.3; version=1.0.0,"
                "application/openmetrics-text; q=0.2; version=0.0.1,"
                "text/plain; q=0.1; version=0.0.4"
            ),
            "text/plain; q=0.1; version=0.0.4",
        ),
        ("", FALLBACK_ACCEPT, FALLBACK_ACCEPT),
        ("text/plain,", FALLBACK_ACCEPT, FALLBACK_ACCEPT),
        ("application/vnd.google.protobuf", FALLBACK_ACCEPT, FALLBACK_ACCEPT),
        ("*/*", "text/plain; q=0.1; version=0.0.4", "text/plain; q=0.1; version=0.0.4"),
        ("*", "text/plain; q=0.1; version=0.0.4", "text/plain; q=0.1; version=0.0.4"),
        (
            "application/*",
            "application/openmetrics-text; q=0.1; version=0.0.1",
            FALLBACK_ACCEPT,
        ),
        (
            "application/openmetrics-text;version=0.0.1,application/*",
            "application/openmetrics-text; q=0.1; version=0.0.1",
            FALLBACK_ACCEPT,
        ),
        (
            "text/*;q=1,text/*,Text/Plain",
            "text/*; q=0.3,text/*; q=0.2,text/plain; q=0.1",
            "text/*; q=0.3,text/*; q=0.2,text/plain; q=0.1",
        ),
        (
            'text/plain;a="b \\" c"',
            'text/plain; a="b \\" c"; q=0.1',
            'text/plain; a="b \\" c"; q=0.1',
        ),
    ],
)
def test_the_order_of_what_is_allowed_is_kept(accept: str, application: str, envoy: str) -> None:
    """cases.md M3, M4; the result depends on nothing before it (D1)."""
    for _ in range(2):
        assert negotiate(accept, APPLICATION_TYPES) == application
        assert negotiate(accept, ENVOY_TYPES) == envoy


@pytest.mark.parametrize("count", [9, 10, 12, 1200])
def test_preferences_fall_however_many_there_are(count: int) -> None:
    accept = negotiate(",".join(["text/plain"] * count), ENVOY_TYPES)

    weights = [float(item.partition("q=")[2]) for item in accept.split(",")]

    assert len(weights) == count
    assert weights == sorted(weights, reverse=True)
    assert 0 < weights[-1] < weights[0] < 1


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", OM1),
        ("application/openmetrics-text; version=1.0.0; escaping=underscores", OM1),
        ("application/openmetrics-text; version=0.0.1", OM0),
        ("Application/OpenMetrics-Text", OM0),
        ("application/openmetrics-text; version=2.0.0", TEXT_FORMAT),
        ("text/plain; version=0.0.4; charset=utf-8", TEXT_FORMAT),
        ("", TEXT_FORMAT),
        ("nonsense;", TEXT_FORMAT),
    ],
)
def test_the_whole_is_labelled_as_the_application(content_type: str, expected: Format) -> None:
    assert response_format(content_type) is expected


def test_the_labels_are_prometheus_own() -> None:
    assert TEXT_FORMAT.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert OM0.content_type == "application/openmetrics-text; version=0.0.1; charset=utf-8"
    assert OM1.content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"


def test_targets_of_several_formats_make_text() -> None:
    assert common_format([OM1, OM1]) == OM1
    assert common_format([OM1, OM0]) == TEXT_FORMAT
    assert common_format([TEXT_FORMAT, OM1]) == TEXT_FORMAT
    assert common_format([]) == TEXT_FORMAT


@pytest.mark.parametrize(
    ("body", "stripped"),
    [
        (b"a 1\n# EOF\n", b"a 1\n"),
        (b"a 1\r\n# EOF\r\n \t\r\n", b"a 1\r\n"),
        (b"# EOF", b""),
        (b"a 1\n\n", b"a 1\n\n"),
        (b"a 1", b"a 1"),
        (b"", b""),
    ],
)
def test_the_terminator_is_stripped_and_nothing_else(body: bytes, stripped: bytes) -> None:
    assert strip_terminator(body) == stripped


def test_the_last_line_is_ended() -> None:
    assert [whole_lines(body) for body in (b"", b"a", b"a\n")] == [b"", b"a\n", b"a\n"]


def lines(*pieces: bytes) -> tuple[bytes, Lines]:
    source = Lines()
    return b"".join(source.feed(piece) for piece in pieces), source


def test_a_whole_source_comes_out_without_terminator_and_with_its_line_end() -> None:
    """cases.md M5."""
    passed, source = lines(b"a 1\nb ", b"2\n", b"# E", b"OF\r", b"\n")

    assert passed == b"a 1\nb 2\n"
    assert source.end() == b""

    passed, source = lines(b"a 1\n", b"b 2")

    assert passed + source.end() == b"a 1\nb 2\n"


def test_a_source_that_breaks_off_loses_its_unfinished_line() -> None:
    passed, source = lines(b"a 1\nb 2\n", b"istio_requests_total{rep")

    assert passed == b"a 1\nb 2\n"
    assert source.cut() == b""

    passed, source = lines(b"a 1\n", b"b 2\n")

    assert passed + source.cut() == b"a 1\nb 2\n"


def test_an_endless_line_is_not_collected() -> None:
    passed, source = lines(b"x" * HELD_BYTES, b"y" * 10)

    assert len(passed) == HELD_BYTES + 10
    assert source.end() == b""
