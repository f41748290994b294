"""Ends of streams, as Envoy and the counters see them. Source: section 2.10."""

import pytest

from agent.xds.endings import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    ENVOY,
    INTERNAL,
    ISTIOD,
    NO_CHANNEL,
    OK,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    UNKNOWN,
    Ending,
    backlog_too_long,
    channel_failed,
    downstream_write_failed,
    not_read,
    silent,
    too_long,
    unreadable,
    upstream_ended,
)


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (OK, "", "cancelled"),
        (CANCELLED, "whatever", "cancelled"),
        (DEADLINE_EXCEEDED, "", "cancelled"),
        (UNAVAILABLE, "Socket closed", "cancelled"),
        (UNAVAILABLE, "GOAWAY received; Error code: 0; Debug Text: max_age", "cancelled"),
        (UNAVAILABLE, "transport is closing", "cancelled"),
        (INTERNAL, "Received RST_STREAM with error code 0", "cancelled"),
        (UNKNOWN, "received prior goaway: code: NO_ERROR", "cancelled"),
        (UNAVAILABLE, "failed to connect to all addresses", "error"),
        (UNAVAILABLE, "GOAWAY received; Error code: 2; Debug Text: x", "error"),
        (
            UNAVAILABLE,
            "Stream removed (Socket closed (GOAWAY received; Error code: 0; ))",
            "cancelled",
        ),
        (UNAVAILABLE, "Stream removed (Socket closed (GOAWAY received; Error code: 2; ))", "error"),
        (INTERNAL, "", "error"),
        (INTERNAL, "Socket closed", "error"),
        (UNAVAILABLE, "failed to connect to all addresses; last error: Socket closed", "error"),
        (RESOURCE_EXHAUSTED, "request rate limit exceeded", "error"),
    ],
)
def test_envoy_sees_the_status_and_the_counter_its_class(
    code: int, details: str, kind: str
) -> None:
    assert upstream_ended(code, details) == Ending(code, details, ISTIOD, kind)


def test_a_message_that_cannot_be_read_is_charged_to_its_sender() -> None:
    assert unreadable("Envoy", "why")[2:] == (ENVOY, "error")
    assert unreadable("control plane", "why") == Ending(
        INTERNAL, "message from control plane cannot be read: why", ISTIOD, "error"
    )


def test_a_message_that_is_too_long_says_what_to_raise() -> None:
    ending = too_long(11, 10)

    assert ending.details == (
        "message from Envoy has 11 bytes, more than ISTIO_GPRC_MAXRECVMSGSIZE=10; raise it"
    )
    assert ending._replace(details="") == Ending(RESOURCE_EXHAUSTED, "", ENVOY, "error")


def test_a_write_that_envoy_does_not_take_names_the_type() -> None:
    ending = downstream_write_failed("type.x", "gone")

    assert ending == Ending(UNKNOWN, "send error for type url type.x: gone", ENVOY, "error")


def test_a_channel_that_cannot_be_made_has_its_own_counter() -> None:
    assert channel_failed("no key").counter == NO_CHANNEL
    assert channel_failed("no key").code == UNAVAILABLE


def test_a_backlog_without_end_ends_the_stream() -> None:
    """D-20."""
    assert backlog_too_long(10).code == RESOURCE_EXHAUSTED


def test_a_control_plane_that_hangs_ends_the_stream() -> None:
    """X6."""
    assert not_read(30) == Ending(
        UNAVAILABLE,
        "control plane does not read: a request has waited for 30s",
        ISTIOD,
        "error",
    )
    assert silent(2700).details == (
        "control plane has sent nothing for 2700s (AGENT_XDS_MAX_SILENCE)"
    )
