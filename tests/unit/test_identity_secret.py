"""Secrets as Envoy reads them, judged by Envoy's own messages. Source: sections 4.4 and 4.5."""

import pytest
from envoy.config.core.v3.base_pb2 import DataSource
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from google.protobuf.duration_pb2 import Duration

from agent.identity.authority import Csr
from agent.identity.secret import (
    SECRET,
    KeyPair,
    PrivateKey,
    Roots,
    SecretRequest,
    read_request,
    write_response,
    write_secret,
)
from agent.identity.settings import KeyProvider
from agent.protobuf.wire import fields, message

PAIR = KeyPair(b"chain", PrivateKey(b"hush"))


def test_a_pair_is_a_certificate_of_tls() -> None:
    secret = Secret.FromString(write_secret("default", PAIR))

    assert secret.name == "default"
    assert secret.tls_certificate.certificate_chain.inline_bytes == b"chain"
    assert secret.tls_certificate.private_key.inline_bytes == b"hush"
    assert not secret.tls_certificate.HasField("private_key_provider")


def test_roots_are_a_validation_context() -> None:
    plain = Secret.FromString(write_secret("ROOTCA", Roots(b"root")))
    revoking = Secret.FromString(write_secret("ROOTCA", Roots(b"root", b"crl")))

    assert plain.validation_context.trusted_ca.inline_bytes == b"root"
    assert not plain.validation_context.HasField("crl")
    assert revoking.validation_context.crl.inline_bytes == b"crl"


@pytest.mark.parametrize(
    ("provider", "kind", "delay"),
    [
        (
            KeyProvider("cryptomb", 1, 500, fallback=True),
            "cryptomb.v3alpha.CryptoMbPrivateKeyMethodConfig",
            Duration(seconds=1, nanos=500),
        ),
        (KeyProvider("qat"), "qat.v3alpha.QatPrivateKeyMethodConfig", Duration()),
    ],
)
def test_a_provider_gets_the_key_instead(provider: KeyProvider, kind: str, delay: Duration) -> None:
    """D-3. The types are contrib, which the package of Envoy's messages leaves out."""
    secret = Secret.FromString(write_secret("default", PAIR, provider))

    written = secret.tls_certificate.private_key_provider
    assert written.provider_name == provider.name
    assert written.fallback is provider.fallback
    assert written.typed_config.type_url == (
        f"type.googleapis.com/envoy.extensions.private_key_providers.{kind}"
    )
    source, wait = (
        written.typed_config.value[start:end]
        for *_, start, end in fields(written.typed_config.value)
    )
    assert DataSource.FromString(source).inline_bytes == b"hush"
    assert Duration.FromString(wait) == delay
    assert not secret.tls_certificate.HasField("private_key")


def test_a_response_holds_the_secrets_asked_for() -> None:
    bodies = [write_secret(name, Roots(b"root")) for name in ("a", "b")]

    response = DiscoveryResponse.FromString(write_response(bodies, version="v", nonce="n"))

    assert (response.version_info, response.nonce, response.type_url) == ("v", "n", SECRET)
    assert [each.type_url for each in response.resources] == [SECRET, SECRET]
    assert [Secret.FromString(each.value).name for each in response.resources] == ["a", "b"]


def test_a_request_is_read() -> None:
    request = DiscoveryRequest(
        type_url=SECRET, response_nonce="n", version_info="v", resource_names=["a", "b"]
    )
    request.node.id = "me"
    request.node.cluster = "c"
    request.error_detail.message = "bad"
    request.error_detail.code = 3

    assert read_request(request.SerializeToString()) == SecretRequest(
        type_url=SECRET, nonce="n", names=("a", "b"), error="bad", node_id="me"
    )
    assert read_request(b"") == SecretRequest()


def test_numbers_in_a_request_are_passed_over() -> None:
    assert read_request(message((9, 1), (5, "n"))).nonce == "n"


def test_a_message_that_comes_in_parts_is_one() -> None:
    one, two = DiscoveryRequest(), DiscoveryRequest()
    one.node.id = "me"
    two.node.cluster = "c"

    assert read_request(one.SerializeToString() + two.SerializeToString()).node_id == "me"


def test_a_key_is_never_shown() -> None:
    """R-29."""
    csr = Csr(PAIR.key, "request", b"")

    shown = f"{PAIR} {PAIR!r} {PAIR.key} {csr} %s %r" % (PAIR.key, PAIR)

    assert "hush" not in shown
    assert shown.count("<private key>") == 6
    assert PAIR.key == b"hush"
