"""The token that speaks for this pod: in a file that the kubelet renews, or from Google.

Google's metadata server makes one for each call. A copy goes where the kubelet's would be: for
others, and for the times when the metadata server does not answer.

Source: xds-identity-dns.md section 6.4.
"""

import asyncio
import logging
import time
from typing import Final

from agent.credentials import jwt
from agent.credentials.files import read_token
from agent.credentials.settings import TokenSettings
from agent.errors import SecretError

log = logging.getLogger(__name__)

TARGET: Final = "/computeMetadata/v1/instance/service-accounts/default/identity"
HEADERS: Final = (("Metadata-Flavor", "Google"),)
FETCH_SECONDS: Final = 5.0
LIMIT_BYTES: Final = 65536
FILE_MODE: Final = 0o640
#: Between two looks at the copy, and what must be left of it then.
REFRESH_SECONDS: Final = 300.0
ENOUGH_SECONDS: Final = 1500.0
#: An old token must last for the call that it is used for.
LEAST_SECONDS: Final = 30.0


async def fetch_token(settings: TokenSettings, *, timeout_seconds: float = FETCH_SECONDS) -> str:
    """Return the token, "" if there is no file of it.

    Raises:
        SecretError: the metadata server gives none, and the last one has expired.
    """
    if not settings.metadata_host:
        return read_token(settings.path)
    try:
        token = await _ask(settings, timeout_seconds)
    except SecretError as error:
        last = read_token(settings.path)
        if not jwt.is_good(last, time.time() + LEAST_SECONDS):
            raise
        log.warning("using the previous token, reason=%r", str(error))
        return last
    _keep(settings.path, token)
    return token


async def keep_fresh(settings: TokenSettings, *, refresh_seconds: float = REFRESH_SECONDS) -> None:
    """Have the copy of the token last, for ever: others may read it, too."""
    while True:
        await asyncio.sleep(refresh_seconds)
        if jwt.is_good(read_token(settings.path), time.time() + ENOUGH_SECONDS):
            continue
        try:
            await fetch_token(settings)
        except SecretError as error:
            log.warning(
                "token not renewed retry_in_seconds=%.0f reason=%r", refresh_seconds, str(error)
            )


async def _ask(settings: TokenSettings, timeout_seconds: float) -> str:
    """Return a token that was made just now."""
    from urllib.parse import quote  # noqa: PLC0415 - few pods need any of these

    from agent.http.client import fetch  # noqa: PLC0415 - as above
    from agent.http.message import HttpError  # noqa: PLC0415 - as above

    target = f"{TARGET}?audience={quote(settings.audience)}&format=full"
    try:
        response = await fetch(
            "GET",
            settings.metadata_host,
            settings.metadata_port,
            target,
            headers=HEADERS,
            timeout_seconds=timeout_seconds,
            limit_bytes=LIMIT_BYTES,
        )
    except HttpError as error:
        raise SecretError(f"no token from the metadata server: {error}") from error
    text = response.body.decode("ascii", "replace").strip()
    where = f"metadata server {settings.metadata_host}"
    if response.status != 200:  # noqa: PLR2004 - OK
        said = text.splitlines()[0] if text else "nothing"
        raise SecretError(
            f"no token from the {where}: expected 200, got {response.status}: {said}; "
            "does the machine have a default service account?"
        )
    if jwt.expires(text) is None:
        raise SecretError(f"no token from the {where}: expected a JWT with a time of expiry")
    return text


def _keep(path: str, token: str) -> None:
    from bootstrap.errors import BootstrapError  # noqa: PLC0415 - few pods need it
    from bootstrap.files import write_atomic  # noqa: PLC0415 - as above

    try:
        write_atomic(path, token, mode=FILE_MODE)
    except BootstrapError as error:
        reason = getattr(error.__cause__, "strerror", None) or error
        raise SecretError(f"{path}: token cannot be kept there: {reason}") from error
