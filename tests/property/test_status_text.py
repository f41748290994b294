"""Text that others wrote is read or refused, never an unexpected error."""

import json

from hypothesis import given
from hypothesis import strategies as st

from agent.http.message import clean_path
from agent.status.exposition import (
    APPLICATION_TYPES,
    Lines,
    negotiate,
    parse_media_type,
    response_format,
    strip_terminator,
    whole_lines,
)
from agent.status.health import serving_status
from agent.status.probes import parse_probers
from agent.status.readiness import judge_config, judge_live
from agent.status.relay import request_target
from agent.status.routes import Redirect, Route, find_route
from agent.status.scrape import parse_annotations

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            [
                "/app-health/a/livez", "/app-lifecycle/b/prestopz", "httpGet", "TCPSOCKET", "grpc",
                "port", "Path", "service", "timeoutSeconds", "scrape", "targets", "host", "scheme",
            ]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@given(JSON.map(json.dumps) | st.text(max_size=20))
def test_settings_are_read_or_refused_with_a_reason(text: str) -> None:
    table = parse_probers(text)
    plan = parse_annotations(text, 15020)

    assert all(table.errors)
    assert plan.error is None or plan.targets == ()


BODY_PIECES = st.lists(
    st.sampled_from([b"a 1", b"\n", b"\r\n", b"# EOF", b" ", b"\t", b"# ", b"EOF", b"x" * 70_000]),
    max_size=12,
)


@given(BODY_PIECES)
def test_a_source_in_pieces_is_the_source_as_a_whole(pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    lines = Lines()

    passed = b"".join(map(lines.feed, pieces)) + lines.end()

    if b"x" not in body:  # longer lines are not held
        assert passed == whole_lines(strip_terminator(body))
    assert body.startswith(passed.rstrip(b"\n"))


@given(BODY_PIECES)
def test_what_is_passed_on_of_a_broken_source_is_whole_lines(pieces: list[bytes]) -> None:
    lines = Lines()

    passed = b"".join(map(lines.feed, pieces)) + lines.cut()

    assert b"".join(pieces).startswith(passed.rstrip(b"\n"))
    if b"x" not in passed:
        assert not passed or passed.endswith(b"\n")


@given(st.text('abc/*;,=q" \\.0123-', max_size=30))
def test_any_accept_gives_one_that_parses(accept: str) -> None:
    asked = negotiate(accept, APPLICATION_TYPES)

    kinds = {parse_media_type(item)[0] for item in asked.split(",")}
    assert kinds <= APPLICATION_TYPES
    assert response_format(accept).content_type


@given(st.text(max_size=40), st.text(max_size=10))
def test_any_statistics_give_a_verdict(stats: str, value: str) -> None:
    for text in (stats, f"server.state: {value}\nlistener_manager.workers_started:{value}"):
        assert judge_config(text) is None or judge_config(text)
        assert judge_live(text) is None or judge_live(text)


@given(st.binary(max_size=20))
def test_any_health_answer_is_read_or_refused(body: bytes) -> None:
    try:
        status = serving_status(body)
    except ValueError:
        return
    assert status >= 0


@given(st.text(max_size=20))
def test_a_target_is_something_http_can_carry(path: str) -> None:
    try:
        target = request_target("/" + path)
    except ValueError:
        return
    assert target.startswith("/")
    assert all("!" <= character <= "~" for character in target)


SEGMENTS = st.lists(
    st.sampled_from(
        ["", ".", "..", "%2e%2e", "%2f", "healthz", "ready", "quitquitquit", "drain", "app-health"]
    ),
    max_size=6,
)


@given(SEGMENTS)
def test_only_the_literal_path_leads_to_an_endpoint(segments: list[str]) -> None:
    path = "/" + "/".join(segments)

    found = find_route(path, "", profiling=True)

    if isinstance(found, Route):
        assert not {"", ".", ".."} & set(segments[:-1])
        assert path == found.path or "%" in path
    if isinstance(found, Redirect):
        assert clean_path(found.location) == found.location
        assert not found.location.startswith("//")
