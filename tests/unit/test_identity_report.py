"""What a person is told about certificates."""

import json
from typing import Final

import pytest

from agent.credentials.x509 import certificates, read_certificate
from agent.identity.report import Facts, distance, document, render
from tests.fakes.ca import Root

ROOT: Final = Root()
SPIFFE_ID: Final = "spiffe://cluster.local/ns/default/sa/hello"
PAIR: Final = ROOT.pair(SPIFFE_ID)
LEAF: Final = read_certificate(certificates(PAIR.certificate)[0])
BROKEN: Final = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"
FULL: Final = Facts(
    spiffe_id=SPIFFE_ID,
    trust_domain="cluster.local",
    source="issued by ca:15012",
    chain=PAIR.certificate + ROOT.pem.encode(),
    roots=ROOT.pem.encode(),
    next_renewal=LEAF.not_after - 1800,
    files={"file-root:b": BROKEN, "file-cert:a~k": PAIR.certificate},
    file_problems={"file-cert:a~k": "the certificate is not for this key"},
)
NOW: Final = LEAF.not_after - 3600


def test_the_document_has_everything_but_the_key() -> None:
    made = json.loads(json.dumps(document(FULL)))

    leaf, root = made["chain"]
    assert leaf["subject"] == "CN=workload"
    assert leaf["issuer"] == root["subject"] == "CN=mesh root"
    assert int(leaf["serial"], 16) == LEAF.serial
    assert (leaf["not_before"], leaf["not_after"]) == (LEAF.not_before, LEAF.not_after)
    assert leaf["san"] == [f"URI:{SPIFFE_ID}"]
    assert made["next_renewal"] == LEAF.not_after - 1800
    assert made["trust_bundle"] == [root]
    assert [each["name"] for each in made["files"]] == ["file-cert:a~k", "file-root:b"]
    assert made["files"][0]["problem"] == "the certificate is not for this key"
    assert made["files"][1]["certificates"] == [{"unreadable": "certificate ends too early"}]


def test_the_text_says_what_is_left() -> None:
    lines = render(document(FULL), NOW).splitlines()

    assert lines[:3] == [
        f"SPIFFE ID      {SPIFFE_ID}",
        "trust domain   cluster.local",
        "certificate    issued by ca:15012",
    ]
    assert lines[3].startswith("next renewal   20")
    assert lines[3].endswith(" UTC (in 30m)")
    assert "  signed by    CN=mesh root" in lines
    assert f"  SAN          URI:{SPIFFE_ID}" in lines
    assert f"  serial       {LEAF.serial:x}" in lines
    assert any(line.startswith("  not after") and line.endswith("(in 1h)") for line in lines)
    assert "  problem      the certificate is not for this key" in lines
    assert "  unreadable   certificate ends too early" in lines


def test_that_there_is_nothing_yet_is_said_with_the_reason() -> None:
    nothing = Facts(SPIFFE_ID, "cluster.local", "", problem="create certificate: refused")

    assert render(document(nothing), NOW).splitlines()[2:] == [
        "certificate    none yet",
        "problem        create certificate: refused",
        "chain          none",
        "trust bundle   none",
    ]


def test_what_a_certificate_says_of_itself_is_no_command_to_a_terminal() -> None:
    shown = document(FULL)
    shown["chain"][0] |= {"subject": "CN=\x1b[2J\n", "not_after": 1e18}

    lines = render(shown, NOW).splitlines()

    assert r"  subject      CN=\x1b[2J\n" in lines
    assert any(line.startswith("  not after    at no time of the calendar (in") for line in lines)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "in 0s"), (59, "in 59s"), (3600, "in 1h"), (90061, "in 1d 1h"), (-61, "1m 1s ago"),
     (3601, "in 1h 1s")],
)  # fmt: skip
def test_a_distance_has_two_units(seconds: float, text: str) -> None:
    assert distance(seconds) == text
