import pytest

from agent.status.relay import (
    Url,
    adds_gzip,
    is_same_origin,
    next_hop,
    probe_headers,
    referer,
    relayed_status,
    request_target,
    rewrite_host,
)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/a/b?c=d", "/a/b?c=d"),
        ("/a#fragment", "/a"),
        ("#", "/"),
        ("/a b?c d", "/a%20b?c%20d"),
        ("/é", "/%C3%A9"),
        ("/a/../b//c", "/a/../b//c"),
        ("/%2e%2E", "/%2e%2E"),
        ("/?a=%zz", "/?a=%zz"),
        ("/a\udcff", "/a%FF"),
    ],
)
def test_only_what_http_forbids_is_escaped(path: str, target: str) -> None:
    assert request_target(path) == target


@pytest.mark.parametrize("path", ["/%zz", "/%", "/a\nb", "/\x7f"])
def test_a_path_that_is_no_part_of_a_url_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="expected no control characters"):
        request_target(path)


def test_the_callers_headers_are_kept_in_order() -> None:
    """cases.md P4."""
    sent = (
        ("Host", "a"),
        ("X", "1"),
        ("User-Agent", "kube-probe/1.30"),
        ("Accept", "*/*"),
        ("Connection", "keep-alive, x"),
        ("X", "2"),
        ("Content-Length", "0"),
        ("Transfer-Encoding", "chunked"),
        ("Trailer", "Y"),
        ("accept-encoding", "gzip"),
    )

    assert probe_headers(sent) == (
        ("X", "1"),
        ("User-Agent", "kube-probe/1.30"),
        ("Accept", "*/*"),
        ("X", "2"),
        ("accept-encoding", "gzip"),
        ("Connection", "close"),
    )


def test_what_the_caller_lacks_is_added() -> None:
    assert probe_headers(()) == (
        ("Connection", "close"),
        ("User-Agent", "mesh-agent"),
        ("Accept-Encoding", "gzip"),
    )
    assert not adds_gzip((("Range", "bytes=0-1"),))


@pytest.mark.parametrize(
    ("host", "rewritten"),
    [
        ("10.0.0.1:15020", "10.0.0.1:8080"),
        ("[fd00::1]:15020", "[fd00::1]:8080"),
        ("10.0.0.1:80", "10.0.0.1:80"),
        ("test.com:9999", "test.com:9999"),
        ("wiki", "wiki"),
        ("fd00::1", "fd00::1"),
        ("", ""),
    ],
)
def test_the_status_port_in_host_becomes_the_applications(host: str, rewritten: str) -> None:
    """cases.md P5."""
    assert rewrite_host(host, 15020, 8080) == rewritten


def test_a_redirect_that_is_a_result_is_a_success() -> None:
    assert [relayed_status(status) for status in (200, 299, 300, 304, 399, 400, 503)] == [
        200, 299, 200, 200, 200, 400, 503,
    ]  # fmt: skip


URL = Url("http", "10.0.0.1", 8080, "/a/b?c")
URL6 = Url("http", "fd00::1", 8080, "/")


@pytest.mark.parametrize(
    ("url", "location", "following", "is_relative"),
    [
        (URL, "/", "http://10.0.0.1:8080/", True),
        (URL, "x?y#z", "http://10.0.0.1:8080/a/x?y", True),
        (URL, "?y", "http://10.0.0.1:8080/a/b?y", True),
        (URL, "http://10.0.0.1:9090/x", "http://10.0.0.1:9090/x", False),
        (URL, "https://10.0.0.1", "https://10.0.0.1:443/", False),
        (URL, "http://10.0.0.1", "http://10.0.0.1:80/", False),
        (URL, "//10.0.0.1/x", "http://10.0.0.1:80/x", False),
        (URL6, "http://[fd00::1]:1/x", "http://[fd00::1]:1/x", False),
        (URL6, "/x", "http://[fd00::1]:8080/x", True),
    ],
)
def test_a_redirect_on_the_same_host_is_followed(
    url: Url,
    location: str,
    following: str,
    is_relative: bool,  # noqa: FBT001 -- a column
) -> None:
    """cases.md P1."""
    hop = next_hop(url, 302, location)

    assert hop is not None
    assert (str(hop.url), hop.is_relative) == (following, is_relative)


@pytest.mark.parametrize("location", ["http://other/", "http://10.0.0.2:8080/", "mailto:a@b", ""])
def test_a_redirect_elsewhere_or_without_location_is_the_result(location: str) -> None:
    assert next_hop(URL, 302, location) is None


@pytest.mark.parametrize("status", [200, 300, 304, 305, 404])
def test_other_statuses_are_no_redirects(status: int) -> None:
    assert next_hop(URL, status, "/") is None


@pytest.mark.parametrize(
    "location", ["ftp://10.0.0.1/", "/\n", "/%zz", "http://[x/", "http://10.0.0.1:99999/"]
)
def test_a_location_that_cannot_be_used_is_a_failure(location: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        next_hop(URL, 302, location)


def test_https_is_no_referer_of_http() -> None:
    tls = URL._replace(scheme="https")

    assert referer(URL, tls) == "http://10.0.0.1:8080/a/b?c"
    assert referer(tls, tls) == "https://10.0.0.1:8080/a/b?c"
    assert referer(tls, URL) == ""


@pytest.mark.parametrize(
    ("connection", "sent"), [("keep-alive", ()), ("", ()), ("Close", (("Connection", "close"),))]
)
def test_a_connection_that_is_kept_is_closed_only_if_the_caller_says_so(
    connection: str, sent: tuple[tuple[str, str], ...]
) -> None:
    headers = probe_headers((("Connection", connection),), may_go_on=True)

    assert tuple(entry for entry in headers if entry[0] == "Connection") == sent


def test_an_origin_is_scheme_host_and_port() -> None:
    url = Url("http", "a", 80, "/")

    assert is_same_origin(url, url._replace(target="/b"))
    assert not is_same_origin(url, url._replace(scheme="https"))
    assert not is_same_origin(url, url._replace(port=81))
