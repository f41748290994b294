import pytest

from agent.http.message import Request
from agent.status.routes import (
    Endpoint,
    Redirect,
    Route,
    find_route,
    is_foreign,
    is_loopback,
)


def find(path: str, query: str = "") -> Route | Redirect | None:
    return find_route(path, query, profiling=True)


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [
        ("/healthz/ready", Endpoint.READY),
        ("/metrics", Endpoint.METRICS),
        ("/stats/prometheus", Endpoint.METRICS),
        ("/quitquitquit", Endpoint.QUIT),
        ("/drain", Endpoint.DRAIN),
        ("/debug", Endpoint.INDEX),
        ("/debug/", Endpoint.INDEX),
        ("/debug/drain", Endpoint.DOCUMENT),
        ("/", Endpoint.PAGE),
        ("/page/main.js", Endpoint.PAGE),
        ("/debug/overview", Endpoint.OVERVIEW),
        ("/debug/ndsz", Endpoint.DOCUMENT),
        ("/debug/certs", Endpoint.DOCUMENT),
        ("/debug/syncz", Endpoint.DOCUMENT),
        ("/debug/syncz/watch", Endpoint.DOCUMENT),
        ("/app-health/a/readyz", Endpoint.PROBE),
        ("/app-health/", Endpoint.PROBE),
        ("/app-lifecycle/a/b/c", Endpoint.PROBE),
        ("/debug/pprof/", Endpoint.PROFILE),
        ("/debug/pprof/cmdline", Endpoint.PROFILE),
        ("/%6detrics", Endpoint.METRICS),
        ("/app%2dhealth/x%2Fy/readyz", Endpoint.PROBE),
        ("/app-health/%2e%2e/drain", Endpoint.PROBE),
    ],
)
def test_a_path_leads_to_an_endpoint(path: str, endpoint: Endpoint) -> None:
    found = find(path)

    assert isinstance(found, Route)
    assert found.endpoint is endpoint


def test_the_path_is_handed_on_decoded() -> None:
    assert find("/app-health/%61/readyz") == Route(Endpoint.PROBE, "/app-health/a/readyz")


@pytest.mark.parametrize(
    "path",
    [
        "/page",
        "/page/",
        "/page/index.html",
        "/page/server.py",
        "/page/main.js/",
        "/debug/overview/",
        "/unknown",
        "/metrics/",
        "/drain/x",
        "/Metrics",
        "/healthz",
        "/healthz/ready/",
        "/healthz%2Fready",
        "/healthz/ready%2F..%2F..%2Fquitquitquit",
        "/healthz/ready/%2e%2e/%2e%2e/quitquitquit",
        "/%2fdrain",
        "/debug/unknown",
        "*",
        "host:80",
        "",
    ],
)
def test_other_paths_lead_nowhere(path: str) -> None:
    assert find(path) is None


@pytest.mark.parametrize(
    ("path", "query", "location"),
    [
        ("/healthz/ready/../../quitquitquit", "", "/quitquitquit"),
        ("/healthz/ready/..//../drain", "a=b", "/drain?a=b"),
        ("//debug/pprof/cmdline", "", "/debug/pprof/cmdline"),
        ("//evil.example/x", "", "/evil.example/x"),
        ("/./metrics", "x=../..", "/metrics?x=../.."),
        ("/metrics/.", "", "/metrics/"),
        ("/app-health", "", "/app-health/"),
        ("/app-lifecycle", "a", "/app-lifecycle/?a"),
        ("/debug/pprof", "", "/debug/pprof/"),
    ],
)
def test_an_unclean_path_is_redirected_and_never_served(
    path: str, query: str, location: str
) -> None:
    assert find(path, query) == Redirect(location)


@pytest.mark.parametrize("path", ["/debug/pprof", "/debug/pprof/", "/debug/pprof/cmdline"])
def test_profiling_can_be_off(path: str) -> None:
    assert find_route(path, "", profiling=False) is None


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("127.0.0.1", True),
        ("127.255.255.254", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("127.0.0.6", False),
        ("::ffff:127.0.0.6", False),
        ("::6", False),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("1127.0.0.1", False),
        ("127.0.0.1.example", False),
        ("", False),
    ],
)
def test_only_this_pod_is_loopback(peer: str, expected: bool) -> None:  # noqa: FBT001 -- a column
    assert is_loopback(peer) is expected


@pytest.mark.parametrize(
    ("method", "site", "destination", "expected"),
    [
        ("GET", "", "", False),  # no browser
        ("GET", "none", "document", False),  # typed by its user
        ("GET", "same-origin", "empty", False),
        ("POST", "same-origin", "empty", False),
        ("GET", "cross-site", "document", False),  # a link
        ("GET", "cross-site", "iframe", True),
        ("GET", "cross-site", "empty", True),
        ("GET", "same-site", "script", True),
        ("POST", "cross-site", "document", True),  # a form
        ("POST", "same-site", "empty", True),
    ],
)
def test_a_browser_says_for_whom_it_asks(
    method: str,
    site: str,
    destination: str,
    expected: bool,  # noqa: FBT001 - a parameter of pytest's
) -> None:
    headers = (("Sec-Fetch-Site", site), ("sec-fetch-dest", destination))

    assert is_foreign(Request(method, "/", headers)) is expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("", False),  # of HTTP/1.0
        ("localhost", False),
        ("LOCALHOST:15020", False),
        ("localhost.", False),
        ("pod.localhost:8080", False),
        ("127.0.0.1:15020", False),
        ("[::1]:15020", False),
        ("[::1]", False),
        ("10.0.0.1", False),
        ("web-1:15020", False),  # of the hosts file
        ("evil.example", True),
        ("evil.example:15020", True),
        ("127.0.0.1.evil.example", True),
        ("localhost.evil.example", True),
        ("evillocalhost.example", True),
        ("evil.example.:15020", True),
        ("evil.example:[::1]", True),
        ("evil.example\n.localhost", True),
    ],
)
def test_a_name_that_a_site_may_have_is_not_ours(
    host: str,
    expected: bool,  # noqa: FBT001 - as above
) -> None:
    assert is_foreign(Request("GET", "/", (("Host", host),))) is expected


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://localhost:15020", False),
        ("http://localhost:3000", True),
        ("https://evil.example", True),
        ("null", True),
    ],
)
def test_an_origin_must_be_the_page(
    origin: str,
    expected: bool,  # noqa: FBT001 - as above
) -> None:
    headers = (("Host", "localhost:15020"), ("Origin", origin))

    assert is_foreign(Request("POST", "/drain", headers)) is expected
