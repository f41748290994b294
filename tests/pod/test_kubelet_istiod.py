"""The istiod look-alike: who it lets in, whom it signs for, and what it pushes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3.discovery_pb2 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
)

from agent.xds.discovery import Kind
from tests.fakes.ca import REQUEST, RESPONSE, Root
from tests.fakes.ca import SERVICE as CA
from tests.fakes.control_plane import SERVICE as ADS
from tests.pod.environment import Placed
from tests.pod.istiod import AUDIENCE, Istiod, Tokens, serving
from tests.pod.mesh import CLUSTER, ENDPOINTS, LISTENER, NAME_TABLE, Mesh, Proxy, Service, resources
from tests.pod.objects import parse_workload
from tests.waiting import until

HOST = "istiod.test"
NODE = Node(id="sidecar~10.0.0.2~web.shop~shop.svc.cluster.local")
SERVICE = Service("web", "10.96.0.1", 80, 8080, namespace="shop")
IDENTITY = "spiffe://cluster.local/ns/shop/sa/clerk"


def placed() -> Placed:
    metadata = {"name": "web", "namespace": "shop"}
    spec = {"containers": [{"name": "web"}], "serviceAccountName": "clerk"}
    workload = parse_workload({"kind": "Pod", "metadata": metadata, "spec": spec})
    return Placed("web", "u", workload, "10.0.0.2", "node", "10.0.0.1", {})


class Client:
    """A pod's connection."""

    def __init__(self, istiod: Istiod, channel: grpc.aio.Channel) -> None:
        self.istiod = istiod
        self.channel = channel
        token = istiod.tokens.make(placed(), AUDIENCE)
        self.metadata = (("authorization", f"Bearer {token}"),)

    def stream(self, kind: Kind, **metadata: str) -> Any:  # noqa: ANN401 - grpc's
        request, response = {
            Kind.SOTW: (DiscoveryRequest, DiscoveryResponse),
            Kind.DELTA: (DeltaDiscoveryRequest, DeltaDiscoveryResponse),
        }[kind]
        call: Any = self.channel.stream_stream(
            f"/{ADS}/{kind.value}", request.SerializeToString, response.FromString
        )
        return call(metadata=tuple(metadata.items()) or self.metadata)

    async def sign(self, name: str, **metadata: str) -> list[str]:
        """Return the chain for a request for a certificate of a name."""
        key = ec.generate_private_key(ec.SECP256R1())
        san = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(name)])
        builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
        csr = builder.add_extension(san, critical=False).sign(key, hashes.SHA256())
        pem = csr.public_bytes(serialization.Encoding.PEM).decode()
        call = self.channel.unary_unary(
            f"/{CA}/CreateCertificate", REQUEST.SerializeToString, RESPONSE.FromString
        )
        request = REQUEST(csr=pem, validity_duration=60)
        answer = await call(request, metadata=tuple(metadata.items()) or self.metadata)
        return list(answer.cert_chain)


@asynccontextmanager
async def connected() -> AsyncIterator[Client]:
    istiod = Istiod(Root(), Tokens())
    istiod.change(Mesh((SERVICE,)))
    trusted = grpc.ssl_channel_credentials(istiod.root.pem.encode())
    options = [("grpc.ssl_target_name_override", HOST)]
    async with (
        serving(istiod, {0: HOST}, "127.0.0.1") as (port,),
        grpc.aio.secure_channel(f"127.0.0.1:{port}", trusted, options) as channel,
    ):
        yield Client(istiod, channel)


def bad_tokens() -> list[str]:
    good = Tokens().make(placed(), AUDIENCE)
    return ["", "x", Tokens().make(placed(), "other"), f"{good}x", good.replace(".", ".e", 1)]


@pytest.mark.parametrize("token", bad_tokens(), ids=range(len(bad_tokens())))
async def test_nobody_comes_in_without_a_good_token(token: str) -> None:
    async with connected() as client:
        with pytest.raises(grpc.aio.AioRpcError, match="authentication failure"):
            await client.stream(Kind.DELTA, authorization=f"Bearer {token}").read()
        with pytest.raises(grpc.aio.AioRpcError, match="authentication failure"):
            await client.sign(IDENTITY, authorization=f"Bearer {token}")

    assert client.istiod.identities == []


async def test_a_certificate_is_of_the_token_whatever_is_asked_for() -> None:
    async with connected() as client:
        leaf, root = await client.sign("spiffe://cluster.local/ns/bank/sa/owner")

    names = x509.load_pem_x509_certificate(leaf.encode()).extensions
    san = names.get_extension_for_class(x509.SubjectAlternativeName).value
    assert san.get_values_for_type(x509.UniformResourceIdentifier) == [IDENTITY]
    assert root == client.istiod.root.pem
    assert client.istiod.identities == [IDENTITY]


async def test_state_of_the_world_is_sent_whole_when_it_changes() -> None:
    async with connected() as client:
        stream = client.stream(Kind.SOTW)
        names = [SERVICE.cluster]
        await stream.write(DiscoveryRequest(type_url=ENDPOINTS, resource_names=names, node=NODE))
        first = await stream.read()
        client.istiod.change(Mesh((SERVICE._replace(endpoints=("10.0.0.3",)),)))
        second = await stream.read()
        await stream.write(DiscoveryRequest(type_url=CLUSTER))
        third = await stream.read()
        stream.cancel()

    assert [first.type_url, second.type_url, third.type_url] == [ENDPOINTS, ENDPOINTS, CLUSTER]
    assert b"10.0.0.3" in second.resources[0].value
    assert len(third.resources) == 4
    assert first.nonce != second.nonce


async def test_of_changes_only_what_is_new_or_gone_is_sent() -> None:
    other = SERVICE._replace(name="other", address="10.96.0.2")
    async with connected() as client:
        stream = client.stream(Kind.DELTA)
        await stream.write(DeltaDiscoveryRequest(type_url=LISTENER, node=NODE))
        first = await stream.read()
        client.istiod.change(Mesh((SERVICE, other)))
        second = await stream.read()
        client.istiod.change(Mesh((other,)))
        third = await stream.read()
        stream.cancel()

    assert {each.name for each in first.resources} == {
        "virtualOutbound",
        "virtualInbound",
        "10.96.0.1_80",
    }
    assert [each.name for each in second.resources] == ["10.96.0.2_80"]
    assert (list(third.resources), list(third.removed_resources)) == ([], ["10.96.0.1_80"])


async def test_names_of_services_are_told_to_whoever_asks() -> None:
    async with connected() as client:
        stream = client.stream(Kind.DELTA)
        await stream.write(DeltaDiscoveryRequest(type_url=NAME_TABLE, node=NODE))
        response = await stream.read()
        stream.cancel()

    assert b"web.shop.svc.cluster.local" in response.resources[0].resource.value


async def test_what_an_envoy_refuses_and_who_it_wrongly_says_it_is_are_kept() -> None:
    async with connected() as client:
        stream = client.stream(Kind.DELTA)
        await stream.write(DeltaDiscoveryRequest(type_url=LISTENER, node=NODE))
        await stream.read()
        refusal = DeltaDiscoveryRequest(type_url=LISTENER)
        refusal.error_detail.message = "no such port"
        await stream.write(refusal)
        stranger = Node(id="sidecar~10.0.0.9~bank.shop~shop.svc.cluster.local")
        await stream.write(DeltaDiscoveryRequest(type_url=LISTENER, node=stranger))
        await until(lambda: len(client.istiod.refusals) == 2)
        stream.cancel()

    assert client.istiod.refusals == [
        f"{LISTENER}: no such port",
        "web says that it is sidecar~10.0.0.9~bank.shop~shop.svc.cluster.local",
    ]


def test_a_gateway_has_one_listener_and_a_transparent_sidecar_keeps_sources() -> None:
    mesh = Mesh((SERVICE,), behind_gateway="web")

    gateway = resources(mesh, Proxy("router", ("10.0.0.2",), "shop"))
    sidecar = resources(mesh, Proxy("sidecar", ("10.0.0.2",), "shop", is_transparent=True))

    assert list(gateway[LISTENER]) == ["0.0.0.0_80"]
    inbound = sidecar[LISTENER]["virtualInbound"]
    names = [each["name"].rpartition(".")[2] for each in inbound["listener_filters"]]
    assert (inbound["transparent"], names) == (
        True,
        ["original_dst", "original_src", "tls_inspector"],
    )
