"""The little of X.509 that the agent reads itself: PEM, and a certificate's outline.

A hundred lines instead of a library of 12 MB, which only a child process may load. Nothing here
verifies a signature: that is for the two ends of a handshake.

Source: ITU-T X.690; RFC 5280 section 4.1; RFC 7468.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

INTEGER: Final = 0x02
OBJECT_ID: Final = 0x06
SEQUENCE: Final = 0x30
UTC_TIME: Final = 0x17
GENERALIZED_TIME: Final = 0x18
VERSION: Final = 0xA0
EXTENSIONS: Final = 0xA3
#: Kinds of alternative names, as OpenSSL writes them. RFC 5280 section 4.2.1.6.
NAME_KINDS: Final = {0x81: "email", 0x82: "DNS", 0x86: "URI", 0x87: "IP"}
LONG_LENGTH: Final = 0x80
MAX_LENGTH_BYTES: Final = 4
PIVOT_YEAR: Final = 50  #: a two-digit year below it is in this century, RFC 5280 4.1.2.5.1
SUBJECT_ALT_NAME: Final = bytes((0x55, 0x1D, 0x11))  #: 2.5.29.17
#: Attributes of a name, by the last byte of 2.5.4.x.
ATTRIBUTES: Final = {
    bytes((0x55, 0x04, last)): name
    for last, name in ((3, "CN"), (6, "C"), (7, "L"), (8, "ST"), (10, "O"), (11, "OU"))
}
BASE64_COLUMNS: Final = 64

#: Tag, and where the content begins and ends.
Element = tuple[int, int, int]


class Certificate(NamedTuple):
    """A certificate's outline; names and keys are DER, to be compared."""

    serial: int
    issuer: bytes
    not_before: float  #: Unix seconds
    not_after: float  #: Unix seconds
    subject: bytes
    public_key: bytes
    #: The subject's alternative names with their kinds, such as URI:spiffe://… and DNS:….
    names: tuple[str, ...]


def certificates(pem: bytes) -> list[bytes]:
    """Return the DER of each certificate in a PEM file; what is no base64 is left out."""
    return pem_bodies(pem, b"CERTIFICATE")


def pem_bodies(pem: bytes, label: bytes) -> list[bytes]:
    """Return the content of each block with a label; what is no base64 is left out."""
    # Base64 has no hyphen: a block without an end is passed over, and nothing is read twice.
    pattern = b"-----BEGIN %b-----([^-]*)-----END %b-----" % (label, label)
    found = []
    for body in re.findall(pattern, pem):
        try:
            found.append(base64.b64decode(b"".join(body.split()), validate=True))
        except binascii.Error:
            continue
    return found


def certificate_pem(der: bytes) -> bytes:
    """Return a certificate as PEM, with a newline at its end."""
    text = base64.b64encode(der)
    starts = range(0, len(text), BASE64_COLUMNS)
    lines = b"\n".join(text[at : at + BASE64_COLUMNS] for at in starts)
    return b"-----BEGIN CERTIFICATE-----\n%b\n-----END CERTIFICATE-----\n" % lines


def read_certificate(der: bytes) -> Certificate:
    """Return a certificate's outline; ValueError if it is none, or its serial is negative.

    Go refuses a negative serial number, and so do its users.
    """
    _, start, _ = _element(der, 0, SEQUENCE)
    _, at, end = _element(der, start, SEQUENCE)
    tag, _, after = _element(der, at)
    if tag == VERSION:
        at = after
    _, start, at = _element(der, at, INTEGER)
    serial = int.from_bytes(der[start:at], "big", signed=True)
    if serial < 0:
        raise ValueError("certificate has a negative serial number")
    _, _, at = _element(der, at, SEQUENCE)  # signature
    issuer, at = _whole(der, at)
    _, start, at = _element(der, at, SEQUENCE)  # validity
    (not_before, not_after) = _validity(der, start, at)
    subject, at = _whole(der, at)
    public_key, at = _whole(der, at)
    return Certificate(
        serial, issuer, not_before, not_after, subject, public_key, tuple(_names(der, at, end))
    )


def request_public_key(der: bytes) -> bytes:
    """Return the public key of a certificate signing request; ValueError if it is none.

    Source: RFC 2986 section 4.1.
    """
    _, start, _ = _element(der, 0, SEQUENCE)
    _, start, _ = _element(der, start, SEQUENCE)
    _, _, at = _element(der, start, INTEGER)  # version
    _, at = _whole(der, at)  # subject
    return _whole(der, at)[0]


def name_text(name: bytes) -> str:
    """Return a name for people, such as 'CN=istiod, O=cluster.local'; ValueError if it is none."""
    parts = []
    _, start, end = _element(name, 0, SEQUENCE)
    for _, first, last in _elements(name, start, end):  # each a set
        for _, at, _ in _elements(name, first, last):
            _, key_start, key_end = _element(name, at, OBJECT_ID)
            _, value_start, value_end = _element(name, key_end)
            key = ATTRIBUTES.get(name[key_start:key_end], "?")
            parts.append(f"{key}={name[value_start:value_end].decode('utf-8', 'replace')}")
    return ", ".join(parts)


def _whole(der: bytes, at: int) -> tuple[bytes, int]:
    """Return a sequence with its head, and the position after it."""
    _, _, end = _element(der, at, SEQUENCE)
    return der[at:end], end


def _validity(der: bytes, start: int, end: int) -> tuple[float, float]:
    times = [_time(tag, der[first:last]) for tag, first, last in _elements(der, start, end)]
    if len(times) != len(("notBefore", "notAfter")):
        raise ValueError(f"expected two times in a certificate, got {len(times)}")
    return times[0], times[1]


def _names(der: bytes, start: int, end: int) -> Iterator[str]:
    """Yield the names in the extension subjectAltName among what follows the public key."""
    for tag, first, _ in _elements(der, start, end):
        if tag != EXTENSIONS:
            continue
        _, at, last = _element(der, first, SEQUENCE)
        for _, head, tail in _elements(der, at, last):
            parts = list(_elements(der, head, tail))  # its id, whether critical, its value
            if parts and der[slice(*parts[0][1:])] == SUBJECT_ALT_NAME:
                _, at, names_end = _element(der, parts[-1][1], SEQUENCE)
                for kind, name, name_end in _elements(der, at, names_end):
                    if kind in NAME_KINDS:
                        text = _name_text(NAME_KINDS[kind], der[name:name_end])
                        yield f"{NAME_KINDS[kind]}:{text}"


def _name_text(kind: str, content: bytes) -> str:
    if kind != "IP":
        return content.decode("ascii", "replace")
    import ipaddress  # noqa: PLC0415 - few certificates have any

    try:
        return str(ipaddress.ip_address(content))
    except ValueError:
        return content.hex()


def _elements(der: bytes, at: int, end: int) -> Iterator[Element]:
    """Yield the elements between two positions."""
    while at < end:
        element = _element(der, at)
        yield element
        at = element[2]


def _element(der: bytes, at: int, expected: int | None = None) -> Element:
    """Return the element at a position; ValueError if there is none, or not of this tag."""
    if at + 2 > len(der):
        raise ValueError("certificate ends too early")
    tag, length, start = der[at], der[at + 1], at + 2
    if length >= LONG_LENGTH:
        size = length - LONG_LENGTH
        if not 1 <= size <= MAX_LENGTH_BYTES:
            raise ValueError(f"length of {size} bytes in a certificate")
        length = int.from_bytes(der[start : start + size], "big")
        start += size
    if start + length > len(der):
        raise ValueError("certificate ends too early")
    if expected is not None and tag != expected:
        raise ValueError(f"expected tag {expected:#x} in a certificate, got {tag:#x}")
    return tag, start, start + length


def _time(tag: int, content: bytes) -> float:
    digits = content.decode("ascii", "replace")
    if tag == UTC_TIME and re.fullmatch(r"\d{12}Z", digits):
        year = int(digits[:2])
        digits = f"{20 if year < PIVOT_YEAR else 19}{digits}"
    elif tag != GENERALIZED_TIME or not re.fullmatch(r"\d{14}Z", digits):
        raise ValueError(f"expected a time in a certificate, got {digits!r}")
    year, month, day, hour, minute, second = (
        int(digits[start:end])
        for start, end in ((0, 4), (4, 6), (6, 8), (8, 10), (10, 12), (12, 14))
    )
    if not (1 <= month <= 12 and 1 <= day <= 31):  # noqa: PLR2004 - a calendar's
        raise ValueError(f"expected a time in a certificate, got {digits!r}")
    return float(_days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second)


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01; the module `calendar` would be 0.4 MB in every pod.

    Years begin with March here, so that the leap day is the last one. Source: Howard Hinnant,
    chrono-compatible low-level date algorithms, days_from_civil.
    """
    year -= month < 3  # noqa: PLR2004 - March
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + of_year - 719_468
