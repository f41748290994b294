"""Docker's configuration and a registry's challenge. Sections 3.5, 3.7 and 3.8."""

import base64
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from agent.wasm.fetch.registry.auth import (
    Challenge,
    Credentials,
    basic,
    find_credentials,
    find_helper,
    helper_server,
    parse_challenge,
    read_helper,
    read_token,
    realms_problem,
    token_form,
    token_url,
)
from agent.wasm.reference import Reference

USER = Credentials("user", "pass:word")
AUTH = base64.b64encode(b"user:pass:word").decode()
IMAGE = Reference("registry:5000", "owner/image", "v1")


def config(**entries: Any) -> str:  # noqa: ANN401 - JSON
    return json.dumps({"auths": {name.replace("_", "."): entry for name, entry in entries.items()}})


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"auth": AUTH}, USER),
        ({"username": "user", "password": "pass:word"}, USER),
        ({"auth": AUTH, "username": "other"}, USER),
        ({"identitytoken": "t"}, Credentials(identity_token="t")),  # noqa: S106 - no secret
        ({"registrytoken": "t"}, Credentials(registry_token="t")),  # noqa: S106 - no secret
        ({}, None),
        ({"auth": "", "email": 5}, None),
        (None, None),
    ],
)
def test_an_entry_has_many_forms(entry: object, expected: Credentials | None) -> None:
    assert find_credentials(config(ghcr_io=entry), ["ghcr.io"]) == expected


@pytest.mark.parametrize(
    ("key", "registry"),
    [
        ("ghcr.io", "ghcr.io"),
        ("https://ghcr.io", "ghcr.io"),
        ("https://ghcr.io/v2/", "ghcr.io"),
        ("http://registry:5000", "registry:5000"),
        ("https://index.docker.io/v1/", "index.docker.io"),
        ("docker.io", "index.docker.io"),
        ("ghcr.io/owner/image", "ghcr.io/owner/image"),
    ],
)
def test_a_key_names_a_host(key: str, registry: str) -> None:
    text = json.dumps({"auths": {"other": {}, key: {"auth": AUTH}}})

    assert find_credentials(text, [registry]) == USER
    assert find_credentials(text, ["elsewhere", registry]) == USER
    assert find_credentials(text, ["elsewhere"]) is None


def test_the_same_key_comes_before_the_same_host() -> None:
    entries = {"https://ghcr.io": {"auth": AUTH}, "ghcr.io": {"identitytoken": "t"}}

    found = find_credentials(json.dumps({"auths": entries}), ["ghcr.io"])

    assert found == Credentials(identity_token="t")  # noqa: S106 - no secret


def test_a_config_without_entries_is_anonymous() -> None:
    assert find_credentials('{"credsStore": "x"}', ["ghcr.io"]) is None
    assert find_helper("{}", "ghcr.io") is None


def test_a_registry_may_have_a_helper_of_its_own() -> None:
    text = json.dumps({
        "credsStore": "all",
        "credHelpers": {"https://ghcr.io": "own", "docker.io": "hub", "off": ""},
    })  # fmt: skip

    assert find_helper(text, "ghcr.io") == "own"
    assert find_helper(text, "index.docker.io") == "hub"
    assert find_helper(text, "other:5000") == "all"
    assert find_helper(text, "off") is None


def test_a_helper_is_asked_as_docker_asks_it() -> None:
    assert helper_server("index.docker.io") == "https://index.docker.io/v1/"
    assert helper_server("ghcr.io") == "ghcr.io"
    assert read_helper(b'{"Username": "user", "Secret": "pass:word"}') == USER
    assert read_helper(b'{"Username": "<token>", "Secret": "t"}') == Credentials(identity_token="t")  # noqa: S106 - no secret
    assert read_helper(b"credentials not found in native keychain\n") is None


@pytest.mark.parametrize("answer", [b"hidden", b"[]", b'{"Username": "hidden"}', b"\xff"])
def test_what_is_no_answer_of_a_helper_is_not_quoted(answer: bytes) -> None:
    with pytest.raises(ValueError, match="a credential helper has answered no JSON") as caught:
        read_helper(answer)

    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("hidden", "expected a docker config in JSON"),
        ("[" * 100_000, "expected a docker config in JSON"),
        ("null", "the secret data is missing"),
        ('["hidden"]', "expected a docker config with 'auths'"),
        ('{"auths": "hidden"}', "expected a docker config with 'auths'"),
        (config(ghcr_io={"auth": "hidden!"}), "field 'auth' is not base64"),
        (config(ghcr_io={"auth": "/w=="}), "field 'auth' is not base64"),
    ],
)
def test_what_is_no_config_is_refused_and_not_quoted(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}$") as caught:
        find_credentials(text, ["ghcr.io"])

    assert caught.value.__cause__ is None


def test_credentials_are_not_shown() -> None:
    assert f"{USER}" == repr(USER) == "<credentials>"
    assert basic(USER) == f"Basic {AUTH}"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], None),
        (["Negotiate abc"], None),
        (["Basic"], Challenge(is_bearer=False)),
        (['Basic realm="x"'], Challenge(is_bearer=False, realm="x")),
        (
            ['Bearer realm="https://a/t",service="s",scope="r:p:pull,push"'],
            Challenge(is_bearer=True, realm="https://a/t", service="s"),
        ),
        (
            ['basic realm="x", bearer service="s", Realm="https://a/t"'],
            Challenge(is_bearer=True, realm="https://a/t", service="s"),
        ),
        (
            ['Basic realm="x"', 'Bearer realm="y"'],
            Challenge(is_bearer=True, realm="y"),
        ),
    ],
)
def test_a_challenge_is_read(headers: list[str], expected: Challenge | None) -> None:
    assert parse_challenge(headers) == expected


def test_every_realm_is_looked_at() -> None:
    good = 'Bearer realm="https://a.example.com/t"'

    assert realms_problem([]) is None
    assert realms_problem(["Basic", good]) is None
    assert realms_problem([good, f'Basic realm="http://10.0.0.1/", {good}'])
    assert realms_problem([f'{good}, Bearer REALM="file:///etc/passwd"'])


def test_a_token_is_asked_for_at_the_realm() -> None:
    challenge = Challenge(is_bearer=True, realm="https://a:1/t?x=y", service="s z")

    url = urlsplit(token_url(challenge, IMAGE))

    assert f"{url.scheme}://{url.netloc}{url.path}" == "https://a:1/t"
    assert parse_qs(url.query) == {
        "x": ["y"], "service": ["s z"], "scope": ["repository:owner/image:pull"]
    }  # fmt: skip
    assert "service" not in token_url(challenge._replace(service=""), IMAGE)


def test_an_identity_token_is_exchanged() -> None:
    known = Credentials(identity_token="t")  # noqa: S106 - no secret
    form = token_form(Challenge(is_bearer=True, service="s"), IMAGE, known)

    assert form["refresh_token"] == "t"  # noqa: S105 - no secret
    assert form["grant_type"] == "refresh_token"
    assert form["scope"] == "repository:owner/image:pull"


def test_a_token_has_two_names() -> None:
    assert read_token(b'{"token": "a"}') == read_token(b'{"access_token": "a"}') == "a"


@pytest.mark.parametrize(
    "body", [b"hidden", b"[" * 100_000, b"[]", b"{}", b'{"token": 5}', b'{"token": ""}']
)
def test_an_answer_without_token_is_not_quoted(body: bytes) -> None:
    with pytest.raises(ValueError, match="answer holds no token"):
        read_token(body)
