"""A server of the page whose agent says what a test wants: its files are the real ones."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from aiohttp import web

from agent.status.outcomes import Outcome
from agent.status.page import server as page_server
from agent.status.page.overview import Parts, overview
from agent.status.probes import GrpcProbe, HttpProbe, TcpProbe
from agent.status.readiness import Shortfall, Standing, document
from tests.browser.looking import Look, looking_at
from tests.fakes.web import web_server

Json = dict[str, Any]
NOW: Final = 1_800_000_000.0
DAY: Final = 86_400.0
#: As long as people make them, without a place to break.
LONG: Final = "averylongnamewithoutanyplacetobreak" * 6
CONNECTED: Final[Json] = {
    "address": "istiod.istio-system.svc:15012",
    "state": "connected",
    "problem": None,
    "last_error": {"reason": "stream was reset", "time": NOW - 90},
}
PLAN: Final[Json] = {
    "condition": {"value": "connections", "from": "AGENT_EXIT_ON"},
    "delay_seconds": {"value": 5.0, "from": "AGENT_DRAIN_DELAY"},
    "minimum_seconds": {"value": 5.0, "from": "default"},
    "deadline_seconds": {"value": 87.0, "from": "AGENT_TERMINATION_GRACE_PERIOD"},
    "jitter_ratio": {"value": 0.25, "from": "AGENT_DRAIN_JITTER"},
}


def sent(version: str, nonce: str = "1") -> Json:
    return {"time": NOW - 60, "version": version, "nonce": nonce, "resources": 12, "bytes": 34_567}


def synced(state: str, **more: object) -> Json:
    return {"state": state, "sent": sent("v1"), "milliseconds": 2.5, "last_nack": None, **more}


def certificate(*, begins: float = NOW - DAY / 2, ends: float = NOW + DAY / 2, **more: str) -> Json:
    return {
        "subject": "CN=workload",
        "issuer": "O=cluster.local",
        "serial": "1e43cef9ddd32022164cca741bfd6ebc3d928f50",
        "not_before": begins,
        "not_after": ends,
        "san": ["URI:spiffe://cluster.local/ns/shop/sa/web"],
        **more,
    }


def certificates(leaf: Json | None = None, **more: object) -> Json:
    root = certificate(ends=NOW + 3650 * DAY, subject="O=cluster.local")
    return {
        "spiffe_id": "spiffe://cluster.local/ns/shop/sa/web",
        "trust_domain": "cluster.local",
        "source": "issued by istiod.istio-system.svc:15012",
        "chain": [leaf or certificate(), root],
        "next_renewal": NOW + DAY / 4,
        "problem": None,
        "trust_bundle": [root],
        "files": [
            {"name": "file-root:/roots.pem", "certificates": [root] * 9, "problem": None},
            {"name": "file-cert:/a~/b", "certificates": [], "problem": "no such file"},
        ],
        **more,
    }


def drain(state: str = "running", waited: float | None = None, **more: object) -> Json:
    cause = None if waited is None else "received signal: terminated"
    return {
        "plan": PLAN,
        "state": state,
        "cause": cause,
        "seconds_since_signal": waited,
        "still_active": None,
        **more,
    }


def documents() -> Json:
    """Return what a busy sidecar's parts say of themselves, with something of everything."""
    refused = {**sent("v2", "2"), "answered": NOW - 59, "error": f"{LONG}: no such cluster\n"}
    stream = {
        "number": 3,
        "kind": "delta",
        "node": "",
        "since": NOW - 3 * DAY,
        "requests": 1234,
        "request_bytes": 63_170,
        "responses": 1200,
        "response_bytes": 12_345_678,
    }
    return {
        "pod": {
            "node": f"sidecar~10.0.0.1~{LONG}.shop~shop.svc",
            "version": "1.31.0-mesh-agent-0.1.0-unknown",
        },
        "passed": {"requests": 1234, "responses": 1200, "refused": 2},
        "syncz": {
            "connection": {**CONNECTED, "sessions": 3, "stream": stream},
            "types": {
                "cds": synced("SYNCED", sent=sent("2026-11-29T18:02:00Z/2")),
                "eds": synced("STALE", milliseconds=None),
                "lds": synced("STALE", sent=sent("v2", "2"), last_nack=refused),
                "rds": synced("SYNCED", last_nack=refused),
                "ecds": synced("NOT SENT", sent=None, milliseconds=None),
                "type.googleapis.com/some.Unknown": synced("SYNCED"),
            },
        },
        "certs": certificates(),
        "dns": {"hosts": 1234, "nameservers": ["10.96.0.10:53"]},
        "drain": drain(),
    }


def parts(
    told: Json, *, shortfall: Shortfall | None = None, details: dict[str, str] | None = None
) -> Parts:
    """Return what the status server would gather where these are the documents."""
    ready, failed = (
        Outcome(200, "", NOW - 3, 0.004, NOW - DAY, 9000),
        Outcome(503, LONG, NOW - 3, 0.04, NOW - 9, 3),
    )
    last = (Shortfall("envoy_live", "workers have not yet started"), 10.0)
    standing = Standing(shortfall, 1000.0, last)
    plane = told.get("syncz", {}).get("connection")
    return Parts(
        time=NOW,
        process={"uptime_seconds": 5000.0, "cpu_seconds": 3.0, "resident_bytes": 36_000_000},
        readiness=document(standing, details or {}, plane, now=5000.0, epoch=NOW - 5000.0),
        documents={name: _saying(what) for name, what in told.items()},
        probers={
            "/app-health/web/readyz": HttpProbe("/ready?deep=1", 8443, is_tls=True),
            "/app-health/web/livez": TcpProbe(8080, 2.0),
            "/app-lifecycle/web/prestopz": GrpcProbe(9000, "orders"),
        },
        outcomes={"/app-health/web/readyz": ready, "/app-health/web/livez": failed},
        asked={"readiness": 10, "probes": 20, "scrapes": 30},
        dns_queries=40,
        envoy={"enabled": True, "starts": 2, "is_local": False},
    )


def _saying(what: object) -> Callable[[], object]:
    return lambda: what


class Telling:
    """What the agent says."""

    def __init__(self, found: Parts) -> None:
        self.answer: Json | web.Response = overview(found)
        self.questions = 0
        #: Unset, an answer is waited for.
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def say(self, found: Parts) -> None:
        self.answer = overview(found)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path in page_server.TYPES:
            reply = page_server.page(request.path)
            assert isinstance(reply.body, bytes)
            return web.Response(body=reply.body, headers=dict(reply.headers))
        self.questions += 1
        await self.may_answer.wait()
        if isinstance(self.answer, web.Response):
            text, status = self.answer.text, self.answer.status
            return web.Response(text=text, status=status)
        return web.json_response(self.answer)


@contextlib.asynccontextmanager
async def looking_at_agent(chromium: str, found: Parts) -> AsyncIterator[tuple[Look, Telling]]:
    """Yield a look at the page of an agent that says this; nothing may go wrong meanwhile."""
    telling = Telling(found)
    async with web_server(telling) as port, looking_at(chromium, port) as look:
        yield look, telling
        look.check()
