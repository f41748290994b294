import pytest

from bootstrap.clusters import sds, xds
from bootstrap.errors import BootstrapError


def test_identity_comes_over_the_named_socket() -> None:
    """Gotcha 15 of bootstrap.md section 8."""
    path = "./var/run/secrets/workload-spiffe-uds/test.sock"

    assert f"'pipe': {{'path': '{path}'}}" in str(sds("test.sock"))


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/run/x", "a/b"])
def test_the_socket_is_a_bare_file_name(name: str) -> None:
    """Gotcha 15 of bootstrap.md section 8."""
    with pytest.raises(BootstrapError, match=r"WORKLOAD_IDENTITY_SOCKET_FILE=.*bare file name"):
        sds(name)


def test_the_path_of_the_agents_socket_is_not_cleaned() -> None:
    assert "'./etc/istio/proxy/XDS'" in str(xds("./etc/istio/proxy"))
