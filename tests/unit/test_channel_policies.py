"""What a policy is called towards people. Source: section 2.2."""

import pytest

from agent.channel.policies import POLICIES


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fips-140-2", "TLS 1.2 with AES-GCM and P-256"),
        ("fips-140-3", "TLS 1.2 or 1.3 with AES-GCM and P-256 or P-384"),
        ("pqc", "TLS 1.3 with AES-GCM and X25519MLKEM768"),
    ],
)
def test_a_policy_says_what_it_allows(name: str, expected: str) -> None:
    assert str(POLICIES[name]) == expected
