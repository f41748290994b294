"""What a probe sends to the application, and what its answer means to the kubelet.

Source: status-lifecycle.md sections 5.4 and 5.7.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from agent.http.message import Headers, first_value, join_host_port, leaves_open, split_host_port

USER_AGENT: Final = "mesh-agent"
#: The caller's connection's own, or of a body that a GET does not have.
NOT_FORWARDED: Final = frozenset(
    ("host", "connection", "content-length", "transfer-encoding", "trailer")
)
REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
MAX_REQUESTS: Final = 10
#: The kubelet shows that much of a body in its events.
BODY_BYTES: Final = 10 * 1024
BAD_ESCAPE: Final = r"%(?![0-9A-Fa-f]{2})"
CONTROL: Final = r"[\x00-\x1f\x7f]"
FORBIDDEN: Final = r"[^\x21-\x7e]"


class Url(NamedTuple):
    """Where a request of a probe goes, in the parts that are sent."""

    scheme: str
    host: str  #: without brackets
    port: int
    target: str  #: path and query, escaped

    @property
    def authority(self) -> str:
        """Return host and port as a Host header has them."""
        return join_host_port(self.host, self.port)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


class Hop(NamedTuple):
    """The next request of a probe that follows a redirect."""

    url: Url
    is_relative: bool  #: the Location had no host


def request_target(path: str) -> str:
    """Return path and query as they are sent; only what HTTP forbids is escaped.

    Raises:
        ValueError: it is no part of a URL.
    """
    whole = path.partition("#")[0]
    if re.search(CONTROL, whole) or re.search(BAD_ESCAPE, whole.partition("?")[0]):
        raise ValueError(f"path {path!r}: expected no control characters and '%' with two digits")
    return re.sub(FORBIDDEN, _escaped, whole) or "/"


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogateescape"))


def is_same_origin(one: Url, other: Url) -> bool:
    """Return whether both are asked for over the same connections."""
    return (one.scheme, one.host, one.port) == (other.scheme, other.host, other.port)


def probe_headers(incoming: Iterable[tuple[str, str]], *, may_go_on: bool = False) -> Headers:
    """Return the headers of a probe, Host apart.

    All of the caller's are kept, in order. `Connection: close` takes the place of what the caller
    wanted of its own connection; what else is added, only where the caller has none.

    Args:
        incoming: what the caller sent.
        may_go_on: the connection is kept, unless the caller wants its own closed.
    """
    incoming = tuple(incoming)
    kept = [entry for entry in incoming if entry[0].lower() not in NOT_FORWARDED]
    if not (may_go_on and leaves_open(incoming)):
        kept.append(("Connection", "close"))
    if not first_value(incoming, "user-agent"):
        kept.append(("User-Agent", USER_AGENT))
    if adds_gzip(incoming):
        kept.append(("Accept-Encoding", "gzip"))
    return tuple(kept)


def adds_gzip(incoming: Iterable[tuple[str, str]]) -> bool:
    """Return whether a compressed answer is for us to decompress."""
    names = {name.lower() for name, _ in incoming}
    return not names & {"accept-encoding", "range"}


def rewrite_host(host: str, status_port: int, port: int) -> str:
    """Return the Host for the application: the status port becomes the application's.

    Any other Host is passed on, so that virtual hosts work (cases.md P4, P5).
    """
    parts = split_host_port(host)
    if parts is None or parts[1] != str(status_port):
        return host
    return join_host_port(parts[0], port)


def relayed_status(status: int) -> int:
    """Return what the caller is told; a redirect that was not followed is a success."""
    return 200 if status // 100 == 3 else status  # noqa: PLR2004 -- the class of redirects


def next_hop(url: Url, status: int, location: str) -> Hop | None:
    """Return the request that follows an answer, None if the answer is the result.

    A redirect is followed as the kubelet does: on the same host name, whatever port and scheme.

    Raises:
        ValueError: the Location cannot be used.
    """
    from urllib.parse import urljoin, urlsplit  # noqa: PLC0415 -- few probes are redirected

    if status not in REDIRECTS or not location:
        return None
    if re.search(CONTROL, location):
        raise ValueError(f"redirect to {location!r}: expected a URL")
    parts = urlsplit(urljoin(str(url), location))
    if (parts.hostname or "") != url.host.lower():
        return None
    if parts.scheme not in DEFAULT_PORTS:
        raise ValueError(f"redirect to {location!r}: expected http or https")
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    target = request_target(target if target.startswith("/") else "/" + target)
    has_host = bool(urlsplit(location).netloc)
    return Hop(Url(parts.scheme, url.host, port, target), not has_host)


def referer(previous: Url, following: Url) -> str:
    """Return the Referer of a followed redirect, none from HTTPS to HTTP."""
    if previous.scheme == "https" and following.scheme == "http":
        return ""
    return str(previous)
