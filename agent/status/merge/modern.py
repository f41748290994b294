"""Envoy's page, and our own, as a part of an OpenMetrics page.

Samples are passed on as they are: both write the text format without blank lines and timestamps,
and what they write then is valid in OpenMetrics. Only the lines between them change, so a large
page costs little more than a look for those.

Source: status-lifecycle.md section 14, D19; OpenMetrics 1.0.0.
"""

import re
from typing import Final

from agent.status.merge.families import UNKNOWN, Family, claims, counter, header, modern_help

METADATA: Final = rb"# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) ?(.*)\n"
#: What neither writes, though the text format has it; \t may stand in a HELP, too.
UNTIDY: Final = (b"\n\n", b"\n ", b" \n", b"\r", b"\t")
BLANKS: Final = (b"\n", b" ", b"\t", b"\r")
KINDS: Final = frozenset(("counter", "gauge", "histogram", "summary"))


class Modern:
    """Whole lines of text format in, the same as OpenMetrics out, without its terminator."""

    def __init__(self) -> None:
        self._names: set[bytes] = set()
        self._family = Family(b"")
        self._is_due = False

    def feed(self, text: bytes) -> bytes:
        """Return some whole lines as OpenMetrics has them."""
        if text[:1] in BLANKS or any(mark in text for mark in UNTIDY):
            text = _tidy(text)
        out: list[bytes] = []
        position, comment = 0, 0 if text.startswith(b"#") else _next_comment(text, 0)
        while comment >= 0:
            self._pass_on(text[position:comment], out)
            position = text.find(b"\n", comment) + 1 or len(text)
            self._take(text[comment:position])
            comment = position if text.startswith(b"#", position) else _next_comment(text, position)
        self._pass_on(text[position:], out)
        return b"".join(out)

    def _pass_on(self, samples: bytes, out: list[bytes]) -> None:
        if samples and self._is_due:
            self._is_due = False
            out.append(self._header())
        out.append(samples)

    def _take(self, line: bytes) -> None:
        found = re.fullmatch(METADATA, line, re.DOTALL)
        if found is None:
            return
        keyword, name, text = found.groups()
        if name != self._family.name or not self._is_due:
            self._family, self._is_due = Family(name), True
        if keyword == b"HELP":
            self._family = self._family._replace(help=modern_help(text))
        elif (kind := text.decode("latin-1")) in KINDS:
            self._family = self._family._replace(kind=kind)

    def _header(self) -> bytes:
        family = self._family
        if family.kind == "counter":
            family = self._counter(family)
        self._names |= claims(family, openmetrics=True)
        return header(family, openmetrics=True)

    def _counter(self, family: Family) -> Family:
        """Return a counter whose samples keep their names, of unknown type where they must."""
        renamed = counter(family)
        if renamed and self._names.isdisjoint(claims(renamed, openmetrics=True)):
            return renamed
        return family._replace(kind=UNKNOWN)


def _next_comment(text: bytes, start: int) -> int:
    return text.find(b"\n#", start) + 1 or -1


def _tidy(text: bytes) -> bytes:
    if not text.endswith(b"\n"):
        return text  # a part of a line that is too long to be looked at
    lines = (line.strip(b" \t\r") for line in text.split(b"\n"))
    return b"".join(line + b"\n" for line in lines if line)
