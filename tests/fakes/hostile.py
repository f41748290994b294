"""What a hostile client sends, drawn at random: whole conversations, as pieces of bytes."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

PROBE = "/app-health/fuzz/livez"
PATHS = (
    "/healthz/ready", "/metrics", "/stats/prometheus", PROBE, "/app-lifecycle/fuzz/prestopz",
    "/app-health/none/readyz", "/quitquitquit", "/drain", "/debug/ndsz", "/debug/config",
    "/debug/logging?level=debug", "/debug/tasks", "/debug/memory", "/debug/certs", "/debug/drain",
    "/debug/syncz", "/debug/syncz/watch", "/debug/pprof/cmdline", "/debug/pprof/",
    "/debug/overview", "/", "/page/main.js", "/unknown",
)  # fmt: skip
METHODS = ("GET", "GET", "GET", "POST", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE")
NO_METHODS = ("CONNECT", "PRI", "get", "G\xcbT", "")
SEGMENTS = (
    "", ".", "..", "%2e%2e", "%2E.", "%2f", "%5c", "..%2f", "%00", "%", "%zz", "healthz", "ready",
    "debug", "pprof", "quitquitquit", "drain", "app-health", "\xff", ";", "a" * 300,
)  # fmt: skip
HEADERS = (
    "X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.1", "X-Real-IP: ::1",
    "Connection: keep-alive", "Expect: 100-continue", "Accept-Encoding: gzip",
    "Accept-Encoding: zstd, gzip;q=0", "Accept-Encoding: \xff;q=nan", "Accept: application/json",
    "Accept: application/openmetrics-text;version=1.0.0", "Accept: ,;=", "Range: bytes=0-1",
    "X-Prometheus-Scrape-Timeout-Seconds: 0.05", "X-Prometheus-Scrape-Timeout-Seconds: nan",
    "X-Prometheus-Scrape-Timeout-Seconds: 1e400", "Sec-Fetch-Site: cross-site", "TE: trailers",
    "X" * 500 + ": y", "User-Agent: \xe9",
)  # fmt: skip
ODD_HEADERS = (
    "Host: localhost", "Connection: Upgrade", "Upgrade: h2c", "Upgrade: websocket",
    "Expect: miracles", "Transfer-Encoding: gzip", "Content-Length: -1", " : ", "X: a\x00b",
    "Content-Length: 99999999999999999999", "no colon", "\tfolded: yes",
)  # fmt: skip
FRAGMENTS = (
    b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b"\x16\x03\x01\x02\x00", b"GET ", b" HTTP/1.1",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b" HTTP/9.9", b"HTTP/1.1 200 OK\r\n\r\n",
    b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 5\r\n", b"\xff" * 40,
)  # fmt: skip


class Conversation(NamedTuple):
    """What one client does."""

    pieces: tuple[bytes, ...]  #: sent one after the other
    #: How it ends: reads the answers, leaves at once, or stays and reads nothing.
    end: str


def draw(random: Random) -> Conversation:
    """Return a conversation of any kind."""
    kind: Callable[[Random], Conversation] = random.choice(KINDS)
    return kind(random)


def target(random: Random) -> str:
    choice = random.random()
    if choice < 0.5:
        return random.choice(PATHS)
    if choice < 0.8:  # dot segments and encoded slashes, before and after what is there
        middle = [random.choice(SEGMENTS) for _ in range(random.randint(1, 6))]
        return random.choice(("", "/healthz/ready")) + "/" + "/".join(middle) + random.choice(PATHS)
    if choice < 0.9:
        scheme = random.choice(("http://127.0.0.1", "http://x/..", "HTTP://[::1]:15020", "//x"))
        return scheme + random.choice(PATHS)
    return random.choice(PATHS) + "?" + "a=/../b&" * random.randint(0, 900)


def request(random: Random, *, closes: bool) -> bytes:
    is_odd = random.random() < 0.1
    method = random.choice(NO_METHODS if is_odd else METHODS)
    lines = [f"{method} {target(random)} HTTP/1.{random.choice('1110')}"]
    if random.random() < 0.95:
        lines.append("Host: fuzz")
    lines += random.sample(HEADERS, random.choice((0, 0, 1, 1, 2, 4)))
    if is_odd:
        lines.append(random.choice(ODD_HEADERS))
    body = b""
    choice = random.random()
    if choice < 0.2:
        body = random.randbytes(random.randint(0, 200))
        lines.append(f"Content-Length: {len(body)}")
    elif choice < 0.3:
        lines.append("Transfer-Encoding: chunked")
        chunk = random.randbytes(random.randint(1, 50))
        body = b"%x;ext\r\n%b\r\n0\r\nTrailer: x\r\n\r\n" % (len(chunk), chunk)
    if closes:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def single(random: Random) -> Conversation:
    return Conversation((request(random, closes=True),), "reads")


def pipelined(random: Random) -> Conversation:
    count = random.randint(2, 30)
    sent = b"".join(request(random, closes=number == count) for number in range(1, count + 1))
    return Conversation((sent,), random.choice(("reads", "reads", "leaves", "stays")))


def garbage(random: Random) -> Conversation:
    parts = [
        random.choice((*FRAGMENTS, random.randbytes(20))) for _ in range(random.randint(1, 30))
    ]
    return Conversation((b"".join(parts),), "reads")


def mutated(random: Random) -> Conversation:
    data = bytearray(request(random, closes=True))
    for _ in range(random.randint(1, 5)):
        place = random.randrange(len(data) + 1)
        data[place : place + random.randint(0, 3)] = random.choice(FRAGMENTS)
    return Conversation((bytes(data),), "reads")


def oversized(random: Random) -> Conversation:
    start = b"POST /metrics HTTP/1.1\r\nHost: fuzz\r\n"
    size = random.choice((5_000, 40_000, 200_000))
    sent = random.choice(
        (
            b"GET /" + b"a" * size + b" HTTP/1.1\r\nHost: fuzz\r\n\r\n",
            start + b"X: " + b"y" * size + b"\r\n\r\n",
            start + b"X: y\r\n" * (size // 6) + b"\r\n",
            start + b"Content-Length: %d\r\n\r\n" % size + b"z" * size,
            start
            + b"Transfer-Encoding: chunked\r\n\r\n"
            + b"1\r\nz\r\n" * (size // 6)
            + b"0\r\n\r\n",
            b"x" * size,
        )
    )
    return Conversation((sent,), random.choice(("reads", "leaves")))


def slow(random: Random) -> Conversation:
    data = request(random, closes=True)[:400]
    size = random.choice((1, 3, 50))
    pieces = tuple(data[start : start + size] for start in range(0, len(data), size))
    kept = pieces if random.random() < 0.5 else pieces[: random.randint(0, len(pieces))]
    return Conversation(kept, random.choice(("reads", "leaves", "stays")))


def leaving(random: Random) -> Conversation:
    return Conversation((request(random, closes=False),), "leaves")


def deaf(random: Random) -> Conversation:
    count = random.randint(1, 40)
    return Conversation((b"GET /metrics HTTP/1.1\r\nHost: fuzz\r\n\r\n" * count,), "stays")


KINDS = (
    single,
    single,
    single,
    single,
    pipelined,
    garbage,
    mutated,
    oversized,
    slow,
    leaving,
    deaf,
)
