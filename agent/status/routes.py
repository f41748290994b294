"""Request paths to endpoints, and who may ask for them.

A path is never normalised and then served: Envoy's health listener forwards whatever begins with
/healthz/ready, from a loopback address, so `/healthz/ready/../../quitquitquit` would let the
whole network stop the pod.

Source: status-lifecycle.md sections 3.2, 3.4 and 3.5.
"""

import re
from enum import Enum, auto
from typing import Final, NamedTuple

from agent.http.message import Request, clean_path, decode_segments


class Endpoint(Enum):
    """What the status server serves."""

    READY = auto()
    METRICS = auto()
    PROBE = auto()
    QUIT = auto()
    DRAIN = auto()
    DOCUMENT = auto()
    LOGGING = auto()
    PROFILE = auto()
    PAGE = auto()
    OVERVIEW = auto()
    INDEX = auto()


class Route(NamedTuple):
    """An endpoint and the path it was asked for."""

    endpoint: Endpoint
    path: str  #: decoded


class Redirect(NamedTuple):
    """The path is to be asked for in another form."""

    location: str


EXACT: Final = {
    ("",): Endpoint.PAGE,
    ("page", "style.css"): Endpoint.PAGE,
    ("page", "main.js"): Endpoint.PAGE,
    ("page", "sections.js"): Endpoint.PAGE,
    ("page", "chart.js"): Endpoint.PAGE,
    ("page", "tree.js"): Endpoint.PAGE,
    ("page", "words.js"): Endpoint.PAGE,
    ("healthz", "ready"): Endpoint.READY,
    ("metrics",): Endpoint.METRICS,
    ("stats", "prometheus"): Endpoint.METRICS,
    ("quitquitquit",): Endpoint.QUIT,
    ("drain",): Endpoint.DRAIN,
    ("debug",): Endpoint.INDEX,
    ("debug", ""): Endpoint.INDEX,
    ("debug", "certs"): Endpoint.DOCUMENT,
    ("debug", "config"): Endpoint.DOCUMENT,
    ("debug", "drain"): Endpoint.DOCUMENT,
    ("debug", "logging"): Endpoint.LOGGING,
    ("debug", "memory"): Endpoint.DOCUMENT,
    ("debug", "ndsz"): Endpoint.DOCUMENT,
    ("debug", "overview"): Endpoint.OVERVIEW,
    ("debug", "syncz"): Endpoint.DOCUMENT,
    ("debug", "syncz", "watch"): Endpoint.DOCUMENT,
    ("debug", "tasks"): Endpoint.DOCUMENT,
}
PREFIXES: Final = {
    ("app-health",): Endpoint.PROBE,
    ("app-lifecycle",): Endpoint.PROBE,
    ("debug", "pprof"): Endpoint.PROFILE,
}
#: Envoy's inbound pass-through connects from this address: it stands for the network (D9).
INBOUND_SOURCE: Final = "127.0.0.6"
LOOPBACK: Final = r"127(\.\d{1,3}){3}|::1"
#: What no site can be called: an address, a name without a domain, and what is below localhost.
OWN_HOST: Final = r"(\[[^\]]*\]|[0-9.]+|[^.:\[\]]*|(.+\.)?localhost\.?)(:[0-9]*)?"


def find_route(path: str, query: str, *, profiling: bool) -> Route | Redirect | None:
    """Return what a path leads to, None for nothing.

    Args:
        path: as received; its segments are compared decoded.
        query: as received.
        profiling: whether the profiling paths exist.
    """
    if not path.startswith("/"):
        return None
    suffix = f"?{query}" if query else ""
    if (clean := clean_path(path)) != path:
        return Redirect(clean + suffix)
    segments = decode_segments(path)
    decoded = "/" + "/".join(segments)
    if segments in EXACT:
        return Route(EXACT[segments], decoded)
    for prefix, endpoint in PREFIXES.items():
        if endpoint is Endpoint.PROFILE and not profiling:
            continue
        if segments == prefix:
            return Redirect(f"{path}/{suffix}")
        if segments[: len(prefix)] == prefix:
            return Route(endpoint, decoded)
    return None


def is_loopback(peer: str) -> bool:
    """Return whether the address of a TCP peer is this pod's own.

    A dual-stack socket reports IPv4 peers as ::ffff:127.0.0.1.
    """
    address = peer.removeprefix("::ffff:")
    return bool(re.fullmatch(LOOPBACK, address)) and address != INBOUND_SOURCE


def is_foreign(request: Request) -> bool:
    """Return whether a browser sends this for another site than ours.

    Whoever looks at the page has made our port one of their own machine, where every site that
    they visit could ask for an end of the pod. The browser says so itself, unless a site has had
    its own name lead to that machine: then Host has it. A link to the page is no such request.
    """
    host, origin = request.header("host"), request.header("origin")
    if not re.fullmatch(OWN_HOST, host, re.IGNORECASE):
        return True
    if origin and origin.rpartition("//")[2] != host:  # what older browsers say
        return True
    if request.header("sec-fetch-site") not in ("cross-site", "same-site"):
        return False
    is_link = request.method == "GET" and request.header("sec-fetch-dest") == "document"
    return not is_link
