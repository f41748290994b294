"""Who the agent is to a registry. Sections 3.5, 3.7 and 3.8, T-W13."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from aiohttp import web

from tests.fakes.archives import tar_gz
from tests.fakes.fetching import fetching
from tests.fakes.registry import PUBLIC, FakeRegistry, docker_config, pulling
from tests.fakes.wasm import MODULE
from tests.fakes.web import web_server
from tests.waiting import until


async def test_a_password_is_for_its_registry(tmp_path: Path) -> None:
    registry = FakeRegistry(user=("user", "password"))
    registry.push_docker("v1")
    async with pulling(tmp_path, registry) as (bench, host):
        url = f"oci://{host}/owner/image:v1"
        right = docker_config(host, "user", "password")
        await bench.fetched(url, secret=right)
        for wrong in (docker_config("other", "user", "password"), None):
            outcome = await bench.refused(url, secret=wrong)
            assert outcome.reason == "could not fetch Wasm OCI image: status 401"


@pytest.mark.parametrize(
    "secret", ["null", "hidden", '{"auths": {"127.0.0.1": {"auth": "hidden!"}}}']
)
async def test_a_secret_that_is_none_is_not_quoted(tmp_path: Path, secret: str) -> None:
    async with fetching(tmp_path) as bench:
        outcome = await bench.refused("oci://127.0.0.1/owner/image:v1", secret=secret)

    assert outcome.reason.startswith("could not fetch Wasm OCI image: pull secret: ")
    assert "hidden" not in outcome.reason


async def test_without_secret_dockers_configuration_counts(tmp_path: Path) -> None:
    registry = FakeRegistry(user=("user", "password"))
    registry.push_docker("v1")
    environ: dict[str, str] = {"DOCKER_CONFIG": str(tmp_path)}
    async with pulling(tmp_path, registry, environ=environ) as (bench, host):
        url = f"oci://{host}/owner/image:v1"
        (tmp_path / "config.json").write_text(docker_config(host, "user", "password"))
        await bench.fetched(url)
        (tmp_path / "config.json").write_text("hidden")
        outcome = await bench.refused(url)
        (tmp_path / "config.json").rename(tmp_path / "auth")
        environ["REGISTRY_AUTH_FILE"] = str(tmp_path / "auth")
        (tmp_path / "auth").write_text(docker_config(f"{host}/owner/image", "user", "password"))
        await bench.fetched(url)

    assert outcome.reason == (
        "could not fetch Wasm OCI image: docker config: expected a docker config in JSON"
    )


HELPER = """#!/bin/sh
[ "$1" = get ] && read -r server
case $server in
    missing*) echo credentials not found in native keychain; exit 1 ;;
    broken*) echo hidden; exit 7 ;;
    strange*) echo hidden ;;
    hanging*) echo $$ > "$PID"; exec sleep 1000 ;;
    *) echo '{"ServerURL": "'$server'", "Username": "user", "Secret": "password"}' ;;
esac
"""


def with_helper(directory: Path, config: dict[str, object]) -> dict[str, str]:
    """Return the environment of a Docker with a credential helper called 'any'."""
    program = directory / "docker-credential-any"
    program.write_text(HELPER)
    program.chmod(0o755)
    (directory / "config.json").write_text(json.dumps(config))
    path = f"{directory}:{os.environ['PATH']}"
    return {"DOCKER_CONFIG": str(directory), "PATH": path, "PID": str(directory / "pid")}


async def test_a_helper_knows_the_password(tmp_path: Path) -> None:
    registry = FakeRegistry(user=("user", "password"))
    registry.push_docker("v1")
    environ = with_helper(tmp_path, {"credsStore": "any"})
    async with pulling(tmp_path, registry, environ=environ) as (bench, host):
        await bench.fetched(f"oci://{host}/owner/image:v1")


@pytest.mark.parametrize(
    ("host", "helper", "reason"),
    [
        ("missing", "any", "status 401"),
        ("broken", "any", "docker config: 'docker-credential-any': exit status 7"),
        ("strange", "any", "docker config: a credential helper has answered no JSON"),
        ("x", "none", "docker config: 'docker-credential-none': no such file or directory"),
        ("x", "\0", "docker config: 'docker-credential-\\x00': no such program"),
    ],
)
async def test_a_helper_that_does_not_help_is_named(
    tmp_path: Path, host: str, helper: str, reason: str
) -> None:
    registry = FakeRegistry(user=("user", "password"))
    names = {f"{host}.example.com": "127.0.0.1"}
    async with web_server(registry) as port:
        registry_name = f"{host}.example.com:{port}"
        environ = with_helper(tmp_path, {"credHelpers": {registry_name: helper}})
        async with fetching(tmp_path, environ=environ, names=names) as bench:
            outcome = await bench.refused(f"oci://{registry_name}/owner/image:v1")

    assert outcome.reason.startswith(f"could not fetch Wasm OCI image: {reason}")
    assert "hidden" not in outcome.reason


async def test_a_helper_that_hangs_is_ended(tmp_path: Path) -> None:
    environ = with_helper(tmp_path, {"credsStore": "any"})
    pid = Path(environ["PID"])
    async with fetching(tmp_path, environ=environ) as bench, asyncio.TaskGroup() as group:
        order = group.create_task(bench.fetch("oci://hanging.example.com/owner/image:v1"))
        await until(lambda: pid.exists() and pid.read_text())
        order.cancel()

    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)  # noqa: ASYNC240 - a test's own file


def with_token(registry: FakeRegistry, host: str, name: str = PUBLIC) -> str:
    """Have a registry want a token, from a public name that stands for itself; return a secret."""
    registry.user = ("user", "password")
    registry.realm = f"http://{name}:{host.rpartition(':')[2]}/token"
    return docker_config(host, "user", "password")


async def test_a_token_is_got_with_a_password(tmp_path: Path) -> None:
    """T-W13: from a public host."""
    registry = FakeRegistry()
    registry.push_docker("v1")
    async with pulling(tmp_path, registry) as (bench, host):
        secret = with_token(registry, host)
        await bench.fetched(f"oci://{host}/owner/image:v1", secret=secret)
        without = await bench.refused(f"oci://{host}/owner/image:v1")

    assert "/token" in registry.paths
    assert without.reason == "could not fetch Wasm OCI image: no token: status 401"


@pytest.mark.parametrize("identity", ["", "an-identity"])
async def test_who_gives_tokens_may_fail_for_a_while(tmp_path: Path, identity: str) -> None:
    """Each request is tried three times."""
    registry = FakeRegistry(identity_token=identity, failures=[200, 503, 0])
    registry.push_docker("v1")
    async with pulling(tmp_path, registry) as (bench, host):
        secret = with_token(registry, host)
        if identity:
            secret = json.dumps({"auths": {host: {"identitytoken": identity}}})
        await bench.fetched(f"oci://{host}/owner/image:v1", secret=secret)

    assert registry.paths.count("/token") == 3


async def test_a_token_is_got_with_an_identity_token(tmp_path: Path) -> None:
    registry = FakeRegistry(identity_token="an-identity")  # noqa: S106 - of nobody
    registry.push_docker("v1")
    async with pulling(tmp_path, registry) as (bench, host):
        with_token(registry, host)
        secret = json.dumps({"auths": {host: {"identitytoken": "an-identity"}}})
        await bench.fetched(f"oci://{host}/owner/image:v1", secret=secret)


async def test_a_registry_token_is_one(tmp_path: Path) -> None:
    registry = FakeRegistry()
    registry.push_docker("v1")
    async with pulling(tmp_path, registry) as (bench, host):
        with_token(registry, host)
        secret = json.dumps({"auths": {host: {"registrytoken": "a-token"}}})
        await bench.fetched(f"oci://{host}/owner/image:v1", secret=secret)

    assert "/token" not in registry.paths


@pytest.mark.parametrize(
    "realm", ["http://169.254.169.254/t", "http://localhost/t", "file:///t", "http://10.0.0.1/t"]
)
async def test_a_password_is_not_sent_nearby(tmp_path: Path, realm: str) -> None:
    """T-W13."""
    registry = FakeRegistry(user=("user", "password"), realm=realm)
    registry.push_docker("v1")
    async with pulling(tmp_path, registry) as (bench, host):
        secret = docker_config(host, "user", "password")
        outcome = await bench.refused(f"oci://{host}/owner/image:v1", secret=secret)

    assert f"realm '{realm}'" in outcome.reason
    assert set(registry.authorizations) == {""}


async def test_another_host_is_not_sent_the_password(tmp_path: Path) -> None:
    registry = FakeRegistry(user=("user", "password"))
    registry.push_docker("v1")
    blobs: list[str] = []

    async def serve_blob(request: web.BaseRequest) -> web.Response:
        blobs.append(request.headers.get("Authorization", ""))
        return web.Response(body=tar_gz(("plugin.wasm", MODULE)))

    async with web_server(serve_blob) as port, pulling(tmp_path, registry) as (bench, host):
        registry.blob_host = f"http://blobs.example.com:{port}"
        secret = docker_config(host, "user", "password")
        await bench.fetched(f"oci://{host}/owner/image:v1", secret=secret)

    assert blobs == [""]


async def test_a_token_from_nowhere_is_none(tmp_path: Path) -> None:
    async def answer(_request: web.BaseRequest) -> web.Response:
        return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})

    async with web_server(answer) as port, fetching(tmp_path) as bench:
        outcome = await bench.refused(f"oci://127.0.0.1:{port}/owner/image:v1")

    assert outcome.reason.endswith("registry wants a token and does not say from where")
