"""Settings as they are shown: all of them, without what may be a secret."""

import json
import re
from enum import Enum
from typing import NamedTuple

import pytest

from agent.masking import MASK, describe
from agent.proxy_flags import PROXY_FLAGS
from agent.settings import World, parse_settings
from iptables.flags import parse_flags

SECRET = "hunter2"  # noqa: S105 -- of a test
PROXY_CONFIG = {
    "discoveryAddress": "istiod.istio-system.svc:15012",
    "proxyMetadata": {"SHOP_TOKEN": SECRET, "XDS_HEADER_X_KEY": SECRET, "SHOP_COLOUR": "green"},
    "tracing": {"lightstep": {"address": "tracer:80", "accessToken": SECRET}},
    "readinessProbe": {
        "httpGet": {
            "port": 8080,
            "path": "/ready",
            "httpHeaders": [{"name": "X-Auth", "value": SECRET}],
        }
    },
}
ENVIRON = {
    "POD_NAME": "web-1",
    "POD_NAMESPACE": "shop",
    "INSTANCE_IP": "10.0.0.5",
    "PROXY_CONFIG": json.dumps(PROXY_CONFIG),
    "XDS_HEADER_AUTHORIZATION": SECRET,
    "CA_HEADER_X_KEY": SECRET,
    "DATABASE_URL": f"postgres://shop:{SECRET}@database/shop",
}
WORLD = World(
    mesh_config=None,
    labels=f'app="{SECRET}"\n',
    annotations=f'example.com/login="{SECRET}"\n',
    interface_addresses=(("eth0", "10.0.0.5"),),
    cpus=2,
)


def test_a_whole_tree_is_json_without_secrets() -> None:
    flags = parse_flags(PROXY_FLAGS, ["sidecar"], unknown_ok=True)
    settings, _ = parse_settings(flags, ENVIRON, WORLD)

    shown = describe(settings)

    text = json.dumps(shown)
    assert SECRET not in text
    assert not re.findall(r"<(?!masked|\d+ )[^>]*>", text)  # each branch by its fields
    assert shown["log"]["levels"] == {"default": "info", "grpc": "none"}
    assert shown["log"]["targets"] == ["stdout"]
    assert "DATABASE_URL" in shown["node"]["environ"]
    assert shown["status"]["port"] == 15020
    assert shown["xds"]["upstream"]["address"] == "istiod.istio-system.svc:15012"
    assert {"name": "authorization", "value": MASK} in shown["xds"]["upstream"]["metadata"]
    assert shown["xds"]["upstream"]["token"]["path"].endswith("istio-token")
    assert shown["status"]["health"]["check"]["path"] == "/ready"
    metadata = shown["node"]["proxy_config"]["proxy_metadata"]
    assert metadata == {"SHOP_TOKEN": MASK, "XDS_HEADER_X_KEY": MASK, "SHOP_COLOUR": "green"}


class Colour(Enum):
    GREEN = "green"


class Branch(NamedTuple):
    token: str = ""
    token_path: str = "/var/run/token"  # noqa: S105 -- where it is
    ratio: float = 0.5
    names: tuple[str, ...] = ("a", "b")
    groups: frozenset[str] = frozenset(("b", "a"))
    colour: Colour = Colour.GREEN
    body: bytes = b"abc"
    labels_text: str = "a=b"
    command: tuple[str, ...] = ("curl", "-u", "me:hunter2")
    nothing: None = None
    url: str = "https://user:pass@host/x?y=a@b"
    call: object = len


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("token", ""),  # nothing is no secret
        ("token_path", "/var/run/token"),
        ("ratio", 0.5),
        ("names", ["a", "b"]),
        ("groups", ["a", "b"]),
        ("colour", "green"),
        ("body", "<3 bytes>"),
        ("labels_text", "<3 characters>"),
        ("command", ["curl", MASK, MASK]),
        ("nothing", None),
        ("url", f"https://{MASK}@host/x?y=a@b"),
        ("call", "<builtin_function_or_method>"),
    ],
)
def test_each_kind_of_value_has_a_form(name: str, shown: object) -> None:
    assert describe(Branch())[name] == shown


@pytest.mark.parametrize(
    "name",
    [
        "token", "PASSWORD", "clientSecret", "api_key", "apiKey", "Cookie", "credential",
        "ENCRYPTION_KEY", "privateKey", "BASIC_AUTH", "DB_PWD", "Authorization", "XDS_HEADER_X",
    ],
)  # fmt: skip
def test_names_of_secrets_are_known(name: str) -> None:
    assert describe({name: SECRET}) == {name: MASK}
    assert describe({name: [SECRET]}) == {name: [MASK]}


@pytest.mark.parametrize("name", ["key_mode", "mounted_key", "token_path", "AUTH_POLICY"])
def test_what_only_sounds_like_one_is_shown(name: str) -> None:
    assert describe({name: "0640"}) == {name: "0640"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"/ready?token={SECRET}", f"/ready?token={MASK}"),
        (f"/ready?deep=1&api_key={SECRET}&b=2#c", f"/ready?deep=1&api_key={MASK}&b=2#c"),
        (f"https://u:{SECRET}@h/x?X-Sig={SECRET}", f"https://{MASK}@h/x?X-Sig={MASK}"),
        ("/ready?deep=1", "/ready?deep=1"),
        ("/ready?token=", "/ready?token="),
    ],
)
def test_secrets_of_a_query_are_masked(text: str, shown: str) -> None:
    assert describe(text) == shown
