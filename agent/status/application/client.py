"""Checks an application once; the result is the reason why it is not healthy, None if it is.

Source: xds-identity-dns.md section 9.2, deviations D-10 and D-11.
"""

from typing import Final, assert_never

from agent.http.client import HttpError, dial
from agent.http.message import Headers, first_value
from agent.status.application.process import run
from agent.status.application.settings import (
    ExecCheck,
    GrpcCheck,
    HealthSettings,
    HttpCheck,
    TcpCheck,
)
from agent.status.redirects.client import EITHER, get
from agent.status.relay import NOT_FORWARDED, Url, request_target

USER_AGENT: Final = "istio-probe/1.0"
HEALTHY: Final = range(200, 400)


async def find_problem(settings: HealthSettings) -> str | None:
    """Return why the application is not healthy, None if it is."""
    try:
        problem = await _find_problem(settings)
    except OSError as error:  # no descriptors left, or no processes
        problem = (error.strerror or str(error)).lower()
    except (HttpError, ValueError) as error:
        problem = str(error)
    # It may quote a setting, and those come from an environment that may be no UTF-8.
    return problem and problem.encode(errors="backslashreplace").decode()


async def _find_problem(settings: HealthSettings) -> str | None:
    check = settings.check
    match check:
        case HttpCheck():
            return await _http(check, settings)
        case TcpCheck(host, port):
            limit, source = settings.timeout_seconds, settings.source
            (await dial(host, port, timeout_seconds=limit, source=source)).close()
            return None
        case ExecCheck(command):
            return await run(command, timeout_seconds=settings.timeout_seconds)
        case GrpcCheck():
            return await _grpc(check, settings)
        case _:
            assert_never(check)


async def _http(check: HttpCheck, settings: HealthSettings) -> str | None:
    scheme = "https" if check.is_tls else "http"
    url = Url(scheme, check.host, check.port, request_target(check.path))
    async with get(
        url,
        host=first_value(check.headers, "host"),
        headers=_headers(check.headers),
        timeout_seconds=settings.timeout_seconds,
        source=settings.source,
        protocols=EITHER if settings.offers_alpn else (),
    ) as incoming:
        if incoming.status in HEALTHY:
            return None
        return f"GET {url}: status {incoming.status}, expected 200 to 399"


def _headers(configured: Headers) -> Headers:
    """Return the headers of a check, Host apart; the HTTP client closes each connection."""
    kept = tuple(entry for entry in configured if entry[0].lower() not in NOT_FORWARDED)
    return kept if first_value(kept, "user-agent") else (*kept, ("User-Agent", USER_AGENT))


async def _grpc(check: GrpcCheck, settings: HealthSettings) -> str | None:
    from agent.status.grpc.client import check as ask  # noqa: PLC0415 -- h2, for gRPC alone

    status = await ask(
        check.host,
        check.port,
        check.service,
        user_agent=USER_AGENT,
        timeout_seconds=settings.timeout_seconds,
        source=settings.source,
    )
    return None if status == "SERVING" else f"service {check.service!r} has status {status}"
