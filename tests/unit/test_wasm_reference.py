"""References to images, and names of modules. Sections 3.4 and 3.5."""

import pytest

from agent.wasm.reference import (
    Reference,
    module_name,
    parse_reference,
    pinned_checksum,
    shown_url,
)

HEX = "0123456789abcdef" * 4
DIGEST = f"sha256:{HEX}"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("oci://ghcr.io/o/image:v1", Reference("ghcr.io", "o/image", "v1")),
        ("oci://ghcr.io/o/image", Reference("ghcr.io", "o/image", "latest")),
        (f"oci://ghcr.io/o/image@{DIGEST}", Reference("ghcr.io", "o/image", "", DIGEST)),
        (f"oci://ghcr.io/image:v1@{DIGEST}", Reference("ghcr.io", "image", "", DIGEST)),
        ("oci://localhost:5000/image", Reference("localhost:5000", "image", "latest")),
        ("oci://localhost/image", Reference("localhost", "image", "latest")),
        ("oci://[::1]:5000/image:v1", Reference("[::1]:5000", "image", "v1")),
        ("oci://image", Reference("index.docker.io", "library/image", "latest")),
        ("oci://image:v1", Reference("index.docker.io", "library/image", "v1")),
        ("oci://owner/image:v1", Reference("index.docker.io", "owner/image", "v1")),
        ("oci://docker.io/image", Reference("index.docker.io", "library/image", "latest")),
    ],
)
def test_references_are_those_of_docker(url: str, expected: Reference) -> None:
    assert parse_reference(url) == expected
    assert module_name(url) == f"oci://{expected.registry}/{expected.repository}"
    assert expected.version == (expected.digest or expected.tag)


@pytest.mark.parametrize(
    "url", ["oci://", "oci://a b/c", "oci://ghcr.io/UPPER/case", "oci://ghcr.io/image@sha256:1", "oci://ghcr.io/image:a~b"]
)  # fmt: skip
def test_what_names_no_image_keeps_its_name(url: str) -> None:
    with pytest.raises(ValueError, match=r"^'"):
        parse_reference(url)

    assert module_name(url) == url


def test_a_password_in_an_images_url_is_not_quoted() -> None:
    with pytest.raises(ValueError, match=r"'@ghcr\.io/image:v1': expected a digest") as caught:
        parse_reference("oci://user:hidden@ghcr.io/image:v1")

    assert "hidden" not in str(caught.value)


def test_other_urls_are_their_own_name() -> None:
    assert module_name("https://a/b:c@d") == "https://a/b:c@d"


def test_a_digest_in_the_url_is_the_checksum() -> None:
    assert pinned_checksum(f"oci://ghcr.io/image@{DIGEST}") == HEX
    assert pinned_checksum("oci://ghcr.io/image:v1") == ""
    assert pinned_checksum(f"http://ghcr.io/image@{DIGEST}") == ""


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:password@host:1/a.wasm?signature=x#y", "https://host:1/a.wasm"),
        ("https://host?x", "https://host"),
        (f"oci://image@{DIGEST}", f"oci://image@{DIGEST}"),
        ("foo", "foo"),
    ],
)
def test_secrets_of_a_url_are_not_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown
