"""Who the agent says it is to a registry: Docker's configuration, and a registry's challenge.

Source: xds-identity-dns.md sections 3.5, 3.7 and 3.8; the Docker registry token specification.
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from agent.wasm.fetch.addresses import realm_problem
from agent.wasm.fetch.errors import BAD_JSON
from agent.wasm.reference import DOCKER_HUB, Reference

#: Names of one registry, and how helpers know it.
HUB_NAMES: Final = (DOCKER_HUB, "docker.io")
HUB_URL: Final = "https://index.docker.io/v1/"
#: A helper's answers: it knows nothing, or its secret is an identity token.
NOT_FOUND: Final = b"credentials not found in native keychain"
TOKEN_USER: Final = "<token>"  # noqa: S105 - a name
CHALLENGE: Final = r"(?:^|,)\s*(Basic|Bearer)(?=\s|$)"
PARAMETER: Final = r'([A-Za-z_]+)="([^"]*)"'
REALM: Final = r'realm="([^"]*)"'


class Credentials(NamedTuple):
    """An entry of Docker's configuration; printing it, or a value that holds it, shows nothing."""

    username: str = ""
    password: str = ""
    identity_token: str = ""
    registry_token: str = ""

    def __repr__(self) -> str:
        return "<credentials>"


class Challenge(NamedTuple):
    """What a registry wants to see."""

    is_bearer: bool
    realm: str = ""
    service: str = ""


def find_credentials(text: str, keys: Sequence[str]) -> Credentials | None:
    """Return the first entry of a docker config that is for one of these registries, if any.

    A key matches that is the same, or names the same host[:port], alone or in a URL.

    Raises:
        ValueError: the text is no docker config. It is not quoted.
    """
    entries = _section(text, "auths")
    for key in keys:
        same = [name for name in entries if _host(name) == _host(key)]
        if key in entries or same:
            return _credentials(entries.get(key) or entries[same[0]])
    return None


def find_helper(text: str, registry: str) -> str | None:
    """Return the name of the helper that a docker config has for a registry, if any.

    Raises:
        ValueError: the text is no docker config. It is not quoted.
    """
    helpers = _section(text, "credHelpers")
    own = [name for server, name in helpers.items() if _host(server) == _host(registry)]
    name = own[0] if own else json.loads(text).get("credsStore")
    return name if isinstance(name, str) and name else None


def helper_server(registry: str) -> str:
    """Return what a helper is asked for."""
    return HUB_URL if registry == DOCKER_HUB else registry


def read_helper(answer: bytes) -> Credentials | None:
    """Return what a helper knows, none where it knows nothing.

    Raises:
        ValueError: this is no answer. It is not quoted.
    """
    if NOT_FOUND in answer:
        return None
    try:
        said = json.loads(answer)
        username, secret = str(said["Username"]), str(said["Secret"])
    except (*BAD_JSON, LookupError, TypeError):
        raise ValueError("a credential helper has answered no JSON with a secret") from None
    if username == TOKEN_USER:
        return Credentials(identity_token=secret)
    return Credentials(username, secret)


def _section(text: str, name: str) -> dict[str, object]:
    """Return a part of a docker config, empty where there is none."""
    try:
        config = json.loads(text)
    except BAD_JSON:
        raise ValueError("expected a docker config in JSON") from None
    if config is None:
        raise ValueError("the secret data is missing")
    entries = config.get(name, {}) if isinstance(config, dict) else None
    if not isinstance(entries, dict):
        raise ValueError(f"expected a docker config with {name!r}")  # noqa: TRY004 - bad input
    return entries


def _host(key: str) -> str:
    host = key.rpartition("://")[2].partition("/")[0]
    return DOCKER_HUB if host in HUB_NAMES else host


def _credentials(entry: object) -> Credentials | None:
    fields = entry.items() if isinstance(entry, dict) else ()
    texts = {str(name): value for name, value in fields if isinstance(value, str)}
    username, password = texts.get("username", ""), texts.get("password", "")
    if texts.get("auth"):
        try:
            both = base64.b64decode(texts["auth"], validate=True).decode()
        except ValueError:
            raise ValueError("field 'auth' is not base64") from None
        username, _, password = both.rstrip("\0").partition(":")
    found = Credentials(
        username, password, texts.get("identitytoken", ""), texts.get("registrytoken", "")
    )
    return found if any(found) else None


def basic(credentials: Credentials) -> str:
    """Return the Authorization header of a name and a password."""
    both = f"{credentials.username}:{credentials.password}"
    return f"Basic {base64.b64encode(both.encode()).decode()}"


def realms_problem(headers: Iterable[str]) -> str | None:
    """Return why a refusal of a registry is not to be followed up, none if it may be.

    Args:
        headers: all WWW-Authenticate headers.
    """
    realms = (realm for header in headers for realm in re.findall(REALM, header, re.IGNORECASE))
    return next(filter(None, map(realm_problem, realms)), None)


def parse_challenge(headers: Iterable[str]) -> Challenge | None:
    """Return the challenge to answer, Bearer before Basic; none if there is neither."""
    found: list[Challenge] = []
    for header in headers:
        starts = list(re.finditer(CHALLENGE, header, re.IGNORECASE))
        ends = [start.start() for start in starts[1:]] + [len(header)]
        for start, end in zip(starts, ends, strict=False):
            pairs = re.findall(PARAMETER, header[start.end() : end])
            parameters = {name.lower(): value for name, value in pairs}
            is_bearer = start[1].lower() == "bearer"
            found.append(
                Challenge(is_bearer, parameters.get("realm", ""), parameters.get("service", ""))
            )
    return max(found, key=lambda challenge: challenge.is_bearer, default=None)


def scope(reference: Reference) -> str:
    """Return what a token is asked for."""
    return f"repository:{reference.repository}:pull"


def token_url(challenge: Challenge, reference: Reference) -> str:
    """Return where to ask for a token with a password, or without."""
    parts = urlsplit(challenge.realm)
    query = [*parse_qsl(parts.query), ("scope", scope(reference))]
    if challenge.service:
        query.append(("service", challenge.service))
    return urlunsplit(parts._replace(query=urlencode(query), fragment=""))


def token_form(
    challenge: Challenge, reference: Reference, credentials: Credentials
) -> Mapping[str, str]:
    """Return what to post to the realm for a token with an identity token."""
    return {
        "grant_type": "refresh_token",
        "service": challenge.service,
        "client_id": "mesh-agent",
        "scope": scope(reference),
        "refresh_token": credentials.identity_token,
    }


def read_token(body: bytes) -> str:
    """Return the token in an answer.

    Raises:
        ValueError: there is none. The answer is not quoted.
    """
    try:
        said = json.loads(body)
    except BAD_JSON:
        said = None
    if isinstance(said, dict):
        for name in ("token", "access_token"):
            if said.get(name) and isinstance(said[name], str):
                return str(said[name])
    raise ValueError("answer holds no token")
