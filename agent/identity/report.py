"""What is served now, for people: as a document, and as text. Never a key.

Source: cases C3, C9 and C13: what an operator must see.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from agent.credentials.x509 import certificates, name_text, read_certificate

SECONDS_PER_UNIT: Final = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
UNITS_SHOWN: Final = 2

Document = dict[str, Any]  # JSON


class Facts(NamedTuple):
    """What is known of a workload's identity."""

    spiffe_id: str
    trust_domain: str
    source: str  #: where the certificate is from; empty if there is none
    chain: bytes = b""
    roots: bytes = b""
    next_renewal: float | None = None  #: Unix seconds
    problem: str = ""  #: of the last attempt
    #: Other resources that Envoy is subscribed to: name -> certificates.
    files: Mapping[str, bytes] = {}
    file_problems: Mapping[str, str] = {}


def document(facts: Facts) -> Document:
    """Return everything as JSON has it; times are Unix seconds."""
    return {
        "spiffe_id": facts.spiffe_id,
        "trust_domain": facts.trust_domain,
        "source": facts.source or None,
        "chain": _described(facts.chain),
        "next_renewal": facts.next_renewal,
        "problem": facts.problem or None,
        "trust_bundle": _described(facts.roots),
        "files": [
            {
                "name": name,
                "certificates": _described(pem),
                "problem": facts.file_problems.get(name),
            }
            for name, pem in sorted(facts.files.items())
        ],
    }


def is_document(shown: object) -> bool:
    """Return whether an answer is such a document."""
    return isinstance(shown, dict) and document(Facts("", "", "")).keys() <= shown.keys()


@lru_cache(maxsize=8)  # a page asks every two seconds; a system's trust store takes 7 ms to read
def _described(pem: bytes) -> list[Document]:
    found: list[Document] = []
    for der in certificates(pem):
        try:
            read = read_certificate(der)
            subject, issuer = name_text(read.subject), name_text(read.issuer)
        except ValueError as error:
            found.append({"unreadable": str(error)})
            continue
        described: Document = {
            "subject": subject,
            "issuer": issuer,
            "serial": f"{read.serial:x}",
            "not_before": read.not_before,
            "not_after": read.not_after,
            "san": list(read.names),
        }
        found.append(described)
    return found


def render(shown: Mapping[str, Any], now: float) -> str:
    """Return a document as text, times as what is left of them."""
    lines = [
        f"SPIFFE ID      {shown['spiffe_id']}",
        f"trust domain   {shown['trust_domain']}",
        f"certificate    {shown['source'] or 'none yet'}",
    ]
    if shown["problem"]:
        lines.append(f"problem        {shown['problem']}")
    if shown["next_renewal"] is not None:
        lines.append(f"next renewal   {_when(shown['next_renewal'], now)}")
    for title, members in (("chain", shown["chain"]), ("trust bundle", shown["trust_bundle"])):
        lines += _section(title, members, now)
    for each in shown["files"]:
        lines += _section(each["name"], each["certificates"], now)
        if each["problem"]:
            lines.append(f"  problem      {each['problem']}")
    return "".join(f"{_printable(line)}\n" for line in lines)


def _printable(line: str) -> str:
    """Return a line that tells a terminal nothing: a certificate's names may hold anything."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def _section(title: str, members: Sequence[Mapping[str, Any]], now: float) -> list[str]:
    lines = [title]
    for member in members:
        if "unreadable" in member:
            lines.append(f"  unreadable   {member['unreadable']}")
            continue
        rows = [
            ("subject", member["subject"] or "(empty)"),
            ("signed by", member["issuer"] or "(empty)"),
            ("serial", member["serial"]),
            *(("SAN", name) for name in member["san"]),
            ("valid from", _when(member["not_before"], now)),
            ("not after", _when(member["not_after"], now)),
        ]
        lines += [f"  {name:13}{value}" for name, value in rows]
        lines.append("")
    return lines if members else [f"{title:14} none"]


def _when(time: float, now: float) -> str:
    """Return a time and its distance, such as "2026-08-22 19:00:53 UTC (in 11h 59m)"."""
    import datetime as dt  # noqa: PLC0415 - 2 ms, for people only

    try:
        text = dt.datetime.fromtimestamp(time, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):  # the year 0, such as no library would write
        text = "at no time of the calendar"
    return f"{text} ({distance(time - now)})"


def distance(seconds: float) -> str:
    """Return a time span in its two largest units, such as "in 11h 59m" or "3s ago"."""
    rest = abs(int(seconds))
    parts: list[str] = []
    for unit, size in SECONDS_PER_UNIT:
        count, rest = divmod(rest, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    span = " ".join(parts[:UNITS_SHOWN])
    return f"in {span}" if seconds >= 0 else f"{span} ago"
