"""The little of a JSON Web Token that the agent reads itself: until when it is good.

Source: RFC 7519 section 4.1.4.
"""

import base64
import binascii
import math
from typing import Final

PARTS: Final = 3  #: header, claims, signature


def expires(token: str) -> float | None:
    """Return when a token expires, Unix seconds; none if it does not say so, or is no JWT."""
    parts = token.split(".")
    if len(parts) != PARTS:
        return None
    import json  # noqa: PLC0415 - only where a cloud makes the tokens

    padding = "=" * (-len(parts[1]) % 4)
    try:
        claims = json.loads(base64.b64decode(parts[1] + padding, altchars=b"-_", validate=True))
        seconds = float(claims["exp"])
    except (binascii.Error, ValueError, TypeError, LookupError, RecursionError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) else None


def is_good(token: str, time: float) -> bool:
    """Return whether a token says that it is good at a time, Unix seconds."""
    end = expires(token)
    return end is not None and time < end
