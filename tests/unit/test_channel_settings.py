"""What a channel is told. Source: sections 2.2 and 2.3."""

from agent.channel.settings import Certificates, proxy_option


def test_grpc_is_told_of_a_proxy_or_that_there_is_none() -> None:
    assert proxy_option("http://proxy:3128") == ("grpc.http_proxy", "http://proxy:3128")
    assert proxy_option("") == ("grpc.enable_http_proxy", 0)


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(Certificates(b"roots", b"chain", b"secret"))
