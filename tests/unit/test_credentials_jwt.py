import base64
import json

import pytest

from agent.credentials.jwt import expires, is_good


def token(claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


@pytest.mark.parametrize("padding", ["", "a", "ab", "ÿ>?"])
def test_a_token_tells_until_when_it_is_good(padding: str) -> None:
    assert expires(token({"exp": 1_800_000_000, "sub": padding})) == 1_800_000_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "opaque",
        "a.b",
        "e30.!.x",
        "e30.YQ.x",
        token({}),
        token([]),
        token(None),
        token({"exp": "soon"}),
        token({"exp": None}),
        token({"exp": float("nan")}),
        token({"exp": float("inf")}),
        token({"exp": 10**400}),
    ],
)
def test_or_it_does_not(text: str) -> None:
    assert expires(text) is None
    assert not is_good(text, 0)


def test_it_is_good_until_then() -> None:
    assert is_good(token({"exp": 1000}), 999.9)
    assert not is_good(token({"exp": 1000}), 1000)
