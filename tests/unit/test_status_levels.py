import pytest

from agent.status.levels import Change, parse_change


@pytest.mark.parametrize(
    ("query", "change"),
    [
        ("level=debug", Change("debug", 600)),
        ("level=xdsproxy:debug&for=90s", Change("xdsproxy:debug", 90)),
        ("level=dns:debug&level=cache:warn&for=0s", Change("dns:debug,cache:warn", 0)),
        ("level=dns%3Adebug&for=24h", Change("dns:debug", 86400)),
        ("level=", Change("", 600)),
    ],
)
def test_a_query_is_a_change(query: str, change: Change) -> None:
    assert parse_change(query) == change


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "expected level="),
        ("for=5m", "expected level="),
        ("level=debug&scope=dns", "'scope': expected level="),
        ("level=debug&for=5", "for='5': expected a duration"),
        ("level=debug&for=25h", "for='25h': expected at most 24h"),
        ("level=debug&for=-1s", "for='-1s': expected at most 24h"),
    ],
)
def test_what_is_no_change_is_refused(query: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}"):
        parse_change(query)
