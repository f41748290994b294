"""One line with a sample, out of either format, as the strictest reader would have it.

What the text format allows beside that, blanks and a last comma, is put in order. Everything else
is refused: numbers are decimal, escapes are those of the formats, label names are not reserved.

Source: OpenMetrics 1.0.0, section 4; Prometheus text format 0.0.4.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

#: Possessive only over single characters: over groups, Python 3.11.2 gets it wrong.
NAME: Final = rb"[a-zA-Z_:][a-zA-Z0-9_:]*+"
LABEL_NAME: Final = rb"(?!__)[a-zA-Z_][a-zA-Z0-9_]*+"
QUOTED: Final = rb'"[^"\\\n]*+(?:\\[\\n"][^"\\\n]*+)*"'
LABEL: Final = rb"(?:%b|%b)=%b" % (LABEL_NAME, QUOTED, QUOTED)
LABELS: Final = rb"%b(?:,%b)*" % (LABEL, LABEL)
NUMBER: Final = (
    rb"(?:[+-]?(?:[0-9]{1,400}+(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
    rb"|[+-]?[iI][nN][fF](?:[iI][nN][iI][tT][yY])?|[nN][aA][nN])"
)
#: Not before 1970: Prometheus refuses that in the text format.
TIME: Final = rb"[0-9]{1,19}+(?:\.[0-9]++)?"
LINE: Final = (
    rb"(?:(%b)(?:\{(%b)?\})?|\{(%b)(?:,(%b))?\}) (%b)(?: (%b))?(?: # (\{(?:%b)?\} %b(?: %b)?))?"
    % (NAME, LABELS, QUOTED, LABELS, NUMBER, TIME, LABELS, NUMBER, TIME)
)
#: The last is a quote that does not end: all the rest, which is not looked through again.
TOKEN: Final = rb'[ \t]+|%b|[{},=]|[^ \t{},="]+|".*' % QUOTED
MILLISECONDS: Final = 3


class Sample(NamedTuple):
    """One value of one series."""

    name: bytes
    labels: tuple[bytes, ...]  #: each as written without its last quote, such as b'code="200'
    value: bytes
    timestamp: bytes
    exemplar: bytes  #: as written
    line: bytes  #: the whole, without what ends it


def parse_sample(line: bytes, *, openmetrics: bool) -> Sample | None:
    """Return the sample in a line, None if it is none; text format is given its blanks' freedom.

    Args:
        line: without its end.
        openmetrics: whether the line is of that format.
    """
    found = _line().fullmatch(line)
    if found is None and not openmetrics:
        line = tidy(line)
        found = _line().fullmatch(line)
    if found is None:
        return None
    name, labels, quoted, others, value, timestamp, exemplar = found.groups(b"")
    if not openmetrics and (exemplar or b"." in timestamp):
        return None
    items = _split(labels or others)
    if quoted or b'{"' in line or b',"' in line:
        name, items = name or unquote(quoted), tuple(map(_plain_label, items))
    if not name or len({label_name(item) for item in items}) < len(items):
        return None
    return Sample(name, items, value, timestamp, exemplar, line)


def _split(labels: bytes) -> tuple[bytes, ...]:
    if not labels:
        return ()
    if b"\\" in labels or b'=",' in labels:  # a quote and a comma may be in a value, or begin one
        return tuple(item[:-1] for item in re.findall(LABEL, labels))
    return tuple(labels[:-1].split(b'",'))


@lru_cache(maxsize=1)
def _line() -> re.Pattern[bytes]:
    return re.compile(LINE)


def tidy(line: bytes) -> bytes:
    """Return a line of the text format with blanks only where they are needed."""
    tokens = re.findall(TOKEN, line)
    if tokens and tokens[-1].startswith(b'"') and not re.fullmatch(QUOTED, tokens[-1]):
        return line
    kept, is_inside = [b""], False
    for token in tokens:
        is_blank = token[:1] in (b" ", b"\t")
        if (token == b"}" and kept[-1] == b",") or (token == b"{" and kept[-1] == b" "):
            kept.pop()
        if not is_blank:
            kept.append(b"} " if token == b"}" else token)
        elif not is_inside and not kept[-1].endswith(b" "):
            kept.append(b" ")
        is_inside = token == b"{" or (is_inside and token != b"}")
    return b"".join(kept).strip(b" ")


def unquote(text: bytes) -> bytes:
    """Return what stands in quotes, without its escapes."""
    escapes = {b"n": b"\n"}
    return re.sub(rb"\\(.)", lambda found: escapes.get(found[1], found[1]), text[1:-1])


def label_name(item: bytes) -> bytes:
    """Return the name of a label as it is written."""
    if item.startswith(b'"'):
        quoted = re.match(QUOTED, item)
        return quoted[0] if quoted else item
    return item.partition(b"=")[0]


def _plain_label(item: bytes) -> bytes:
    """Return a label without quotes around a name that needs none: it may stand there twice."""
    found = re.fullmatch(rb'"(%b)"(=.*)' % LABEL_NAME, item, re.DOTALL)
    return found[1] + found[2] if found else item


def in_other_format(sample: Sample, *, as_openmetrics: bool) -> Sample:
    """Return a sample as the other format has it: time in other units, and no exemplar."""
    if not sample.timestamp and not sample.exemplar:
        return sample
    time = _seconds(sample.timestamp) if as_openmetrics else _milliseconds(sample.timestamp)
    line = without_tail(sample) + (b" " + time if time else b"")
    return sample._replace(timestamp=time, exemplar=b"", line=line)


def without_exemplar(sample: Sample) -> Sample:
    """Return the sample alone."""
    line = sample.line[: -len(b" # " + sample.exemplar)]
    return sample._replace(exemplar=b"", line=line)


def without_tail(sample: Sample) -> bytes:
    """Return series and value alone."""
    time, exemplar = sample.timestamp, sample.exemplar
    tail = len(b" " + time if time else b"") + len(b" # " + exemplar if exemplar else b"")
    return sample.line[: len(sample.line) - tail]


def _seconds(milliseconds: bytes) -> bytes:
    if not milliseconds:
        return b""
    digits = milliseconds.rjust(MILLISECONDS + 1, b"0")
    return b"%b.%b" % (digits[:-MILLISECONDS], digits[-MILLISECONDS:])


def _milliseconds(seconds: bytes) -> bytes:
    if not seconds:
        return b""
    whole, _, fraction = seconds.partition(b".")
    return whole + fraction[:MILLISECONDS].ljust(MILLISECONDS, b"0")
