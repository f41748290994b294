"""`agent xds get`, against a control plane over TLS; and what the command cannot do."""

import asyncio
import contextlib
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
import yaml
from envoy.config.cluster.v3 import cluster_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from envoy.service.discovery.v3 import discovery_pb2

from agent.protobuf.wire import message
from agent.xds.discovery import (
    Kind,
    Resource,
    read_request,
    read_subscription,
    write_response,
)
from agent.xds.resources import CLUSTER, ENDPOINT, LISTENER, NAME_TABLE, SECRET
from tests.fakes.control_plane import SERVER_NAME, Authority, ControlPlane, control_plane
from tests.fakes.dns_table import TABLE, serialised
from tests.fakes.relay_bench import response

AUTHORITY = Authority()
KEY = "-----BEGIN PRIVATE KEY-----\nMIGH\n-----END PRIVATE KEY-----\n"
NO_AGENT = "--debug-port=1"


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    output: str
    errors: str


async def started(
    directory: Path, *words: str, stdout: int = PIPE, **variables: str
) -> asyncio.subprocess.Process:
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "CLOUD_PLATFORM": "none",
        "POD_NAME": "web",
        "POD_NAMESPACE": "shop",
        "INSTANCE_IP": "10.0.0.1",
        **variables,
    }
    command = [sys.executable, "-m", "agent", "xds", *words]
    return await asyncio.create_subprocess_exec(
        *command, cwd=directory, env=environ, stdout=stdout, stderr=PIPE
    )


async def run(directory: Path, *words: str, **variables: str) -> Done:
    process = await started(directory, *words, stdout=PIPE, **variables)
    output, errors = await asyncio.wait_for(process.communicate(), 30)
    return Done(process.returncode or 0, output.decode(), errors.decode())


def make_pod(directory: Path) -> None:
    """Mount root and token where a pod has them."""
    secrets = directory / "var/run/secrets"
    for name, content in (
        ("istio/root-cert.pem", AUTHORITY.root),
        ("tokens/istio-token", b"the token"),
    ):
        (secrets / name).parent.mkdir(parents=True)
        (secrets / name).write_bytes(content)


Asked = list[tuple[dict[str, str], Kind, bytes]]
Answer = Callable[[Kind], bytes]


@contextlib.asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[tuple[ControlPlane, Asked]]:
    """Run a control plane with TLS that gives every stream one answer; what came is in a list."""
    asked: Asked = []

    async def serve(plane: ControlPlane) -> None:
        while True:
            stream = await plane.accept()
            asked.append((stream.metadata, stream.kind, await stream.receive() or b""))
            await stream.send(answer(stream.kind))

    async with control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane:
        task = asyncio.create_task(serve(plane))
        try:
            yield plane, asked
        finally:
            task.cancel()
            await asyncio.wait((task,))


async def get(directory: Path, plane: ControlPlane, *words: str, **variables: str) -> Done:
    make_pod(directory)
    config = json.dumps({"discoveryAddress": plane.address})
    more = {"PROXY_CONFIG": config, "ISTIOD_SAN": SERVER_NAME, **variables}
    return await run(directory, "get", NO_AGENT, *words, **more)


def clusters(kind: Kind) -> bytes:
    resources = [
        Resource(CLUSTER, name, "", cluster_pb2.Cluster(name=name).SerializeToString())
        for name in ("one", "two")
    ]
    return write_response(kind, CLUSTER, version="v7", nonce="1", resources=resources)


@pytest.mark.parametrize(("delta", "kind"), [("true", Kind.DELTA), ("false", Kind.SOTW)])
async def test_what_the_control_plane_has_is_printed_as_yaml(
    delta: str, kind: Kind, tmp_path: Path
) -> None:
    async with serving(clusters) as (plane, asked):
        done = await get(tmp_path, plane, "cds", ISTIO_DELTA_XDS=delta, XDS_HEADER_FOO="bar")

    assert (done.code, done.errors) == (
        0,
        f"Note: cds version='v7' resources=2 bytes={len(clusters(kind))}\n",
    )
    assert list(yaml.safe_load_all(done.output)) == [
        {"@type": CLUSTER, "name": "one"},
        {"@type": CLUSTER, "name": "two"},
    ]
    [(metadata, seen_kind, raw)] = asked
    assert (metadata["authorization"], metadata["foo"]) == ("Bearer the token", "bar")
    assert seen_kind is kind
    assert read_request(kind, raw).type_url == CLUSTER
    assert read_subscription(kind, raw).names == ()


async def test_names_are_asked_for_and_those_that_are_not_there_are_told(tmp_path: Path) -> None:
    async with serving(clusters) as (plane, asked):
        done = await get(tmp_path, plane, "CDS", "one", "three", "-o", "json", "--domain=d")

    assert done.code == 0
    assert json.loads(done.output)[0] == {"@type": CLUSTER, "name": "one"}
    assert done.errors.endswith("\nNote: not there: three\n")
    request = discovery_pb2.DeltaDiscoveryRequest.FromString(asked[0][2])
    assert list(request.resource_names_subscribe) == ["one", "three"]
    assert request.node.id == "sidecar~10.0.0.1~web.shop~d"
    assert request.node.metadata["NAMESPACE"] == "shop"


async def test_what_was_not_asked_for_is_passed_over(tmp_path: Path) -> None:
    """In delta, istiod pushes endpoints behind clusters. Section 10.4."""

    async def serve(plane: ControlPlane) -> None:
        stream = await plane.accept()
        await stream.send(response(stream.kind, ENDPOINT))
        await stream.send(clusters(stream.kind))

    async with control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane:
        _, done = await asyncio.gather(serve(plane), get(tmp_path, plane, CLUSTER))

    assert len(list(yaml.safe_load_all(done.output))) == 2


async def test_no_resources_are_no_output_and_a_hint(tmp_path: Path) -> None:
    async with serving(lambda kind: response(kind, ENDPOINT)) as (plane, _):
        done = await get(tmp_path, plane, "eds")

    assert (done.code, done.output) == (0, "")
    assert "Note: istiod has some types only for whoever names what he wants\n" in done.errors


async def test_the_agents_own_types_are_printed_too(tmp_path: Path) -> None:
    async with serving(lambda kind: response(kind, NAME_TABLE, serialised(TABLE))) as (plane, _):
        done = await get(tmp_path, plane, "nds")

    table = yaml.safe_load(done.output)["table"]
    assert table["productpage.ns1.svc.cluster.local"]["ips"] == ["9.9.9.9"]


async def test_a_secret_is_printed_without_its_key(tmp_path: Path) -> None:
    secret = secret_pb2.Secret(name="gateway")
    secret.tls_certificate.private_key.inline_bytes = KEY.encode()
    secret.tls_certificate.certificate_chain.inline_string = "chain"
    async with serving(lambda kind: response(kind, SECRET, secret.SerializeToString())) as (
        plane,
        _,
    ):
        done = await get(tmp_path, plane, "sds", "kubernetes://gateway")

    assert yaml.safe_load(done.output)["tls_certificate"] == {
        "certificate_chain": {"inline_string": "chain"},
        "private_key": {"inline_string": "[redacted]"},
    }
    assert "PRIVATE" not in done.output + done.errors


async def test_a_resource_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    async with serving(lambda kind: response(kind, SECRET, b"\xff")) as (plane, _):
        done = await get(tmp_path, plane, "sds")

    assert (done.code, done.output) == (255, "")
    assert done.errors == (
        f"Error: {SECRET}: a resource cannot be read: a secret that cannot be read is not shown\n"
    )


async def test_a_resource_that_is_nested_too_deeply_is_an_error(tmp_path: Path) -> None:
    url = "type.googleapis.com/google.protobuf.Any"
    body = b""
    for _ in range(500):
        body = message((1, url), (2, body))
    async with serving(lambda kind: response(kind, url, body)) as (plane, _):
        done = await get(tmp_path, plane, url)

    assert (done.code, done.output) == (255, "")
    assert done.errors == f"Error: {url}: a resource cannot be read: it is nested too deeply\n"


async def test_a_refusal_of_the_control_plane_is_one_line(tmp_path: Path) -> None:
    async def serve(plane: ControlPlane) -> None:
        stream = await plane.accept()
        stream.end(grpc.StatusCode.UNAUTHENTICATED, "authentication\nfailure")

    async with control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane:
        _, done = await asyncio.gather(serve(plane), get(tmp_path, plane, "lds"))

    assert done == Done(
        255,
        "",
        f"Error: control plane {plane.address}: UNAUTHENTICATED: authentication failure\n",
    )


async def test_a_control_plane_that_does_not_answer_is_waited_for_so_long(tmp_path: Path) -> None:
    async with control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane:
        done = await get(tmp_path, plane, "lds", "--timeout=300ms")

    assert done.errors == (
        f"Error: control plane {plane.address}: no answer for {LISTENER} within 0.3 s\n"
    )


async def test_an_answer_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    async with serving(lambda _: b"\xff") as (plane, _):
        done = await get(tmp_path, plane, "lds")

    assert done.code == 255
    assert done.errors.startswith(f"Error: control plane {plane.address}: its answer cannot be re")
    assert done.errors.count("\n") == 1


async def test_a_client_certificate_without_its_key_is_one_line(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    pair = AUTHORITY.issue("web")
    (own / "root-cert.pem").write_bytes(AUTHORITY.root)
    (own / "cert-chain.pem").write_bytes(pair.certificate)
    async with control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane:
        done = await get(tmp_path, plane, "lds", PROV_CERT="own")

    assert done.code == 255
    assert done.errors.startswith(f"Error: control plane {plane.address}: ")
    assert done.errors.endswith("'own/key.pem'\n")


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        (("get", "foo"), {}, "Error: type 'foo': expected one of cds, ecds, eds, lds,"),
        (("get",), {}, "Error: xds get: expected get TYPE [NAME...], status or watch\n"),
        (("get", "lds", "-o", "xml"), {}, "Error: --output='xml': expected yaml or json\n"),
        (("get", "lds", "--nonsense"), {}, "Error: unknown flag --nonsense"),
        (("get", "lds", "--proxy-type=x"), {}, "Error: invalid proxy Type: x; expected one of"),
        (("get", "lds"), {"POD_NAME": ""}, "Error: POD_NAME is not set: expected the pod's own"),
        (("get", "lds"), {}, "Error: ./var/run/secrets/istio/root-cert.pem (PILOT_CERT_PROVIDER"),
        (("get", "lds"), {"PROV_CERT": "x"}, "Error: x/root-cert.pem (PROV_CERT): expected"),
        (
            ("get", "lds"),
            {"AGENT_LOCAL_XDS": "builtin"},
            "Error: AGENT_LOCAL_XDS='builtin': this pod has no control plane to ask; ",
        ),
        (("status",), {}, "Error: no answer from the agent at localhost:1: "),
        (("watch",), {}, "Error: no answer from the agent at localhost:1: "),
        (("status", "-o", "yaml"), {}, "Error: --output='yaml': expected json\n"),
    ],
)
async def test_what_does_not_work_is_one_line(
    words: tuple[str, ...], variables: dict[str, str], said: str, tmp_path: Path
) -> None:
    done = await run(tmp_path, NO_AGENT, *words, **variables)

    assert (done.code, done.output) == (255, "")
    assert done.errors.startswith(said)
    assert done.errors.count("\n") == 1


async def test_help_tells_of_all_three(tmp_path: Path) -> None:
    done = await run(tmp_path, "--help")

    assert done.code == 0
    for expected in ("agent xds get TYPE [NAME...]", "agent xds status", "agent xds watch"):
        assert f"  {expected}\n" in done.output
    assert "--proxy-type" in done.output
    assert await run(tmp_path) == done
