import pytest

from bootstrap.override import override_json


@pytest.mark.parametrize(
    ("host_ip", "ip", "bare"),
    [
        ("dead::beef", "[dead::beef]:8126", "[dead::beef]:8126"),
        ("169.254.169.254", "[169.254.169.254]:8126", "169.254.169.254:8126"),
        ("", "[]:8126", ":8126"),
    ],
)
def test_the_nodes_address_is_bracketed_once(host_ip: str, ip: str, bare: str) -> None:
    text = 'ip: "[$(HOST_IP)]:8126"\nip2: "$(HOST_IP):8126"\n'

    assert override_json(text, host_ip) == f'{{"ip":"{ip}","ip2":"{bare}"}}'


def test_a_fragment_without_braces_is_yaml() -> None:
    assert override_json('"tracing": {"http": {}}\n', "") == '{"tracing":{"http":{}}}'


@pytest.mark.parametrize("text", ["", "null", "[a]", "x", "a: 2020-01-01", "a: .nan"])
def test_what_envoy_would_refuse_is_no_override(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected (a mapping|values that JSON can hold)"):
        override_json(text, "")


def test_bad_yaml_is_no_override() -> None:
    with pytest.raises(ValueError, match="expected JSON or YAML"):
        override_json("a: [", "")
