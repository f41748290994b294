"""Which proxy a request goes through. Section 3.8."""

import pytest

from agent.http.proxies import choose_proxy

PROXY = "http://proxy:3128"
BOTH = {"HTTP_PROXY": PROXY, "HTTPS_PROXY": "http://secure:3128"}


def test_each_scheme_has_a_proxy_of_its_own() -> None:
    assert choose_proxy("http://a/", BOTH) == PROXY
    assert choose_proxy("https://a/", BOTH) == "http://secure:3128"
    assert choose_proxy("http://a/", {}) is None
    assert choose_proxy("https://a/", {"HTTP_PROXY": PROXY}) is None


def test_lower_case_counts_where_upper_case_is_not_set() -> None:
    lower = {"http_proxy": PROXY, "no_proxy": "b"}

    assert choose_proxy("http://a/", lower) == PROXY
    assert choose_proxy("http://b/", lower) is None
    assert choose_proxy("http://a/", {**lower, "HTTP_PROXY": "http://upper:1"}) == "http://upper:1"


def test_a_proxy_without_scheme_is_http() -> None:
    assert choose_proxy("http://a/", {"HTTP_PROXY": "user:pw@proxy:1"}) == "http://user:pw@proxy:1"


def test_a_proxy_of_a_cgi_request_is_not_believed() -> None:
    assert choose_proxy("http://a/", {**BOTH, "REQUEST_METHOD": "GET"}) is None


@pytest.mark.parametrize(
    "proxy",
    ["http://", "http://u:secret@[::1", "http://u:secret@proxy:abc", "proxy:99999", "a:b:c"],
)
def test_what_is_no_url_is_not_quoted(proxy: str) -> None:
    with pytest.raises(ValueError, match=r"^HTTP_PROXY: expected the URL of a proxy$"):
        choose_proxy("http://a/", {"HTTP_PROXY": proxy})


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost.",
        "LocalHost",
        "[::ffff:127.0.0.1]",
        "127.0.0.1",
        "127.9.9.9:80",
        "[::1]:80",
    ],
)
def test_the_loopback_needs_no_proxy(host: str) -> None:
    assert choose_proxy(f"http://{host}/", BOTH) is None


@pytest.mark.parametrize(
    ("exceptions", "host", "goes_straight"),
    [
        ("*", "a.example.com", True),
        ("example.com", "example.com", True),
        ("example.com", "a.example.com", True),
        ("example.com", "notexample.com", False),
        (" Example.com , other", "a.EXAMPLE.com", True),
        (".example.com", "a.example.com", True),
        (".example.com", "example.com", False),
        ("*.example.com", "a.example.com", True),
        ("*.example.com", "example.com", False),
        ("*example.com", "example.com", False),
        ("example.com.", "example.com", True),
        ("example.com", "example.com.", True),
        ("example.com:80", "example.com", True),
        ("example.com:81", "example.com", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3:80", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.0.0.0/8", "example.com", False),
        ("10.0.0.0/nonsense", "10.1.2.3", False),
        ("[2001:db8::1]:80", "[2001:db8::1]", True),
        ("2001:db8::1", "[2001:db8::1]", True),
        ("2001:db8::/32", "[2001:db8::2]", True),
        ("::ffff:10.1.2.3", "10.1.2.3", True),
        ("10.0.0.0/8", "[::ffff:10.1.2.3]", True),
        (",,:80", "example.com", False),
    ],
)
def test_exceptions(exceptions: str, host: str, *, goes_straight: bool) -> None:
    proxy = choose_proxy(f"http://{host}/", {**BOTH, "NO_PROXY": exceptions})

    assert (proxy is None) is goes_straight
