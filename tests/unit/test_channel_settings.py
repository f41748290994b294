"""What a channel is told. Source: sections 2.2 and 2.3."""

import pytest

from agent.channel.settings import Certificates, parse_policy, proxy_option
from agent.reader import Reader


@pytest.mark.parametrize("name", ["", "fips-140-2", "fips-140-3", "pqc"])
def test_a_policy_is_one_that_is_known(name: str) -> None:
    read = Reader({"COMPLIANCE_POLICY": name})

    assert parse_policy(read) == name
    assert read.warnings == []


def test_grpc_is_told_of_a_proxy_or_that_there_is_none() -> None:
    assert proxy_option("http://proxy:3128") == ("grpc.http_proxy", "http://proxy:3128")
    assert proxy_option("") == ("grpc.enable_http_proxy", 0)


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(Certificates(b"roots", b"chain", b"secret"))
