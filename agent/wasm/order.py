"""What the agent and the process that fetches for it say to each other, a line of JSON each.

Orders are carried out at once and answered as they are done, so each has a number.
"""

import base64
import json
from typing import Any, NamedTuple

from agent.wasm.cache import PullSecret
from agent.wasm.settings import FetchSettings


class FetchOrder(NamedTuple):
    """Fetch a module and store it."""

    url: str
    checksum: str  #: that it must have; '' for any
    timeout_seconds: float
    secret: PullSecret | None
    #: Versions that are there: an image of one of them is not fetched. Only where any will do.
    known: tuple[str, ...] = ()


class StructOrder(NamedTuple):
    """Make a message of a google.protobuf.Struct that has the message's JSON form."""

    type_url: str
    content: bytes

    def __repr__(self) -> str:
        return f"<a {self.type_url} in JSON>"  # there may be a secret in it


class Fetched(NamedTuple):
    """The module is there."""

    checksum: str
    is_new: bool = True


class Converted(NamedTuple):
    """The message."""

    content: bytes

    def __repr__(self) -> str:
        return f"<{len(self.content)} bytes>"


class Refused(NamedTuple):
    """It cannot be done."""

    reason: str
    result: str = ""  #: label of the metric of fetches


Order = FetchOrder | StructOrder
Outcome = Fetched | Converted | Refused


def write_order(number: int, order: Order) -> bytes:
    """Return an order as a line."""
    if isinstance(order, StructOrder):
        return _line({"number": number, "type": order.type_url, "struct": _text(order.content)})
    return _line(
        {
            "number": number,
            "url": order.url,
            "checksum": order.checksum,
            "timeout": order.timeout_seconds,
            "secret": order.secret.text if order.secret else None,
            "known": order.known,
        }
    )


def read_order(line: bytes) -> tuple[int, Order]:
    """Return what `write_order` was given."""
    said = json.loads(line)
    number: int = said["number"]
    if "struct" in said:
        return number, StructOrder(said["type"], base64.b64decode(said["struct"]))
    secret = said["secret"]
    return number, FetchOrder(
        url=said["url"],
        checksum=said["checksum"],
        timeout_seconds=said["timeout"],
        secret=None if secret is None else PullSecret(secret),
        known=tuple(said["known"]),
    )


def write_outcome(number: int, outcome: Outcome) -> bytes:
    """Return an outcome as a line."""
    if isinstance(outcome, Fetched):
        return _line({"number": number, **outcome._asdict()})
    if isinstance(outcome, Converted):
        return _line({"number": number, "message": _text(outcome.content)})
    return _line({"number": number, "reason": outcome.reason, "result": outcome.result})


def read_outcome(line: bytes) -> tuple[int, Outcome]:
    """Return what `write_outcome` was given."""
    said = json.loads(line)
    number: int = said["number"]
    if "checksum" in said:
        return number, Fetched(said["checksum"], said["is_new"])
    if "message" in said:
        return number, Converted(base64.b64decode(said["message"]))
    return number, Refused(said["reason"], said["result"])


def write_settings(settings: FetchSettings) -> str:
    """Return the settings as the argument of the process; nothing of them is secret."""
    return json.dumps(settings._asdict())


def read_settings(text: str) -> FetchSettings:
    """Return what `write_settings` was given."""
    said = json.loads(text)
    lists = {name: tuple(said[name]) for name in ("insecure", "blocked")}
    return FetchSettings(**{**said, **lists})


def _line(said: dict[str, Any]) -> bytes:
    return json.dumps(said).encode() + b"\n"


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
