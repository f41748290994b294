"""Metrics of several sources as one text: formats, terminators and line ends.

Each part keeps to whole lines, so that a source that fails in the middle, or does not end its last
line, spoils nothing of the next one (cases.md M5, M7).

Source: status-lifecycle.md sections 4.4 to 4.7.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

TEXT: Final = "text/plain"
OPENMETRICS: Final = "application/openmetrics-text"
#: Envoy's part is passed through into any format, so it is only asked for text.
ENVOY_TYPES: Final = frozenset(("text/*", TEXT))
APPLICATION_TYPES: Final = frozenset(("text/*", TEXT, OPENMETRICS))
FALLBACK_ACCEPT: Final = "text/plain;version=0.0.4"
WILDCARDS: Final = {
    "*/*": (TEXT, (("version", "0.0.4"),)),
    "*": (TEXT, (("version", "0.0.4"),)),
    "application/*": (OPENMETRICS, (("version", "0.0.1"),)),
}
TERMINATOR: Final = b"# EOF\n"
BLANKS: Final = b" \t\r\n"
#: Of an unfinished line; a longer one is passed on as it comes.
HELD_BYTES: Final = 64 * 1024
WORD: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
PARAMETER: Final = rf'\s*;\s*({WORD})=({WORD}|"(?:[^"\\]|\\.)*")'
MAX_TENTHS: Final = 9

MediaType = tuple[str, tuple[tuple[str, str], ...]]


class Format(NamedTuple):
    """What the merged text is labelled as."""

    content_type: str
    is_openmetrics: bool


TEXT_FORMAT: Final = Format("text/plain; version=0.0.4; charset=utf-8", is_openmetrics=False)
FORMATS: Final[Mapping[str, Format]] = {
    "0.0.1": Format(f"{OPENMETRICS}; version=0.0.1; charset=utf-8", is_openmetrics=True),
    "1.0.0": Format(f"{OPENMETRICS}; version=1.0.0; charset=utf-8", is_openmetrics=True),
}


def parse_media_type(text: str) -> MediaType:
    """Return type and parameters, both names in lower case, the parameters sorted.

    Raises:
        ValueError: it is no media type.
    """
    found = re.match(rf"\s*({WORD}(?:/{WORD})?)\s*", text)
    if not found:
        raise ValueError(f"media type {text!r}: expected type/subtype")
    parameters: dict[str, str] = {}
    position = len(found[0])
    while parameter := re.match(PARAMETER, text[position:]):
        name, value = parameter[1].lower(), parameter[2]
        if name in parameters:
            raise ValueError(f"media type {text!r}: parameter {name} is repeated")
        if value.startswith('"'):
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        parameters[name] = value
        position += parameter.end()
    if text[position:].strip() not in ("", ";"):
        raise ValueError(f"media type {text!r}: expected parameters such as version=1.0.0")
    return found[1].lower(), tuple(sorted(parameters.items()))


def negotiate(accept: str, allowed: frozenset[str]) -> str:
    """Return the Accept to send to a source, given the one that we were sent.

    The order of the caller is its preference; its q-values are ignored. What is not allowed
    is left out: protobuf and compressed formats cannot be merged (cases.md M4).

    Source: status-lifecycle.md section 4.6.
    """
    try:
        asked = [parse_media_type(item) for item in accept.split(",")]
    except ValueError:
        return FALLBACK_ACCEPT
    taken: list[MediaType] = []
    for kind, parameters in asked:
        entry = WILDCARDS.get(kind, (kind, tuple(p for p in parameters if p[0] != "q")))
        if entry[0] in allowed and not (kind in WILDCARDS and entry in taken):
            taken.append(entry)
    if not taken:
        return FALLBACK_ACCEPT
    weights = _weights(len(taken))
    return ",".join(
        _media_type_text(kind, (*parameters, ("q", weight)))
        for (kind, parameters), weight in zip(taken, weights, strict=True)
    )


def _weights(count: int) -> Iterable[str]:
    """Return falling q-values: tenths as long as they last, then thousandths (D14)."""
    if count <= MAX_TENTHS:
        return [f"0.{rank}" for rank in range(count, 0, -1)]
    return [f"0.{max(min(rank, 999), 1):03d}" for rank in range(count, 0, -1)]


def _media_type_text(kind: str, parameters: Iterable[tuple[str, str]]) -> str:
    return "; ".join((kind, *(f"{name}={_quoted(value)}" for name, value in sorted(parameters))))


def _quoted(value: str) -> str:
    if re.fullmatch(WORD, value):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def response_format(content_type: str) -> Format:
    """Return how to label the whole, given the application's content type.

    Source: status-lifecycle.md section 4.7.
    """
    kind, parameters = _media_type(content_type)
    if kind != OPENMETRICS:
        return TEXT_FORMAT
    return FORMATS.get(dict(parameters).get("version", "0.0.1"), TEXT_FORMAT)


def is_openmetrics(content_type: str) -> bool:
    """Return whether a page is written so, in whatever version."""
    return _media_type(content_type)[0] == OPENMETRICS


def _media_type(content_type: str) -> MediaType:
    """Return type and parameters, nothing where they cannot be read."""
    try:
        return parse_media_type(content_type)
    except ValueError:
        return "", ()


def common_format(formats: Iterable[Format]) -> Format:
    """Return the format of several targets: theirs if it is one, otherwise text."""
    found = set(formats)
    return found.pop() if len(found) == 1 else TEXT_FORMAT


def strip_terminator(body: bytes) -> bytes:
    """Return the body without OpenMetrics' last line; one that has none is left as it is."""
    ended = body.rstrip(BLANKS)
    return ended[: -len(TERMINATOR.strip())] if ended.endswith(TERMINATOR.strip()) else body


def whole_lines(body: bytes) -> bytes:
    """Return the body with its last line ended."""
    return body if not body or body.endswith(b"\n") else body + b"\n"


class Lines:
    """Passes on whole lines of one source, without its terminator.

    The last line that is not blank is held until more follows: it may be the terminator, or
    unfinished when the source fails.
    """

    def __init__(self) -> None:
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Return what may be passed on."""
        text = self._held + piece
        start = text.rfind(b"\n", 0, len(text.rstrip(BLANKS))) + 1
        if len(text) - start > HELD_BYTES:
            start = len(text)
        self._held = text[start:]
        return text[:start]

    def end(self) -> bytes:
        """Return the rest of a source that was read completely."""
        return whole_lines(strip_terminator(self._held))

    def cut(self) -> bytes:
        """Return the rest of a source that failed: its last line only if it was finished."""
        return self.end() if self._held.endswith(b"\n") else b""
