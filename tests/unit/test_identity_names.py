"""Resource names. Source: xds-identity-dns.md section 5.1."""

import pytest

from agent.identity.names import FileResource, file_resource


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("file-cert:/a/cert.pem~/a/key.pem", FileResource("/a/cert.pem", "/a/key.pem")),
        ("file-cert:cert~key", FileResource("cert", "key")),
        ("file-root:/a/root.pem", FileResource("/a/root.pem")),
    ],
)
def test_names_of_files_are_taken_apart(name: str, expected: FileResource) -> None:
    assert file_resource(name) == expected


@pytest.mark.parametrize(
    "name",
    ["", "default2", "kubernetes://x", "file-cert:", "file-cert:a", "file-cert:a~", "file-cert:~b",
     "file-cert:a~b~c", "file-root:", "file-root:a~b", "FILE-ROOT:a"],
)  # fmt: skip
def test_any_other_name_is_refused(name: str) -> None:
    """D-4: the reference answers with the workload's key."""
    with pytest.raises(ValueError, match=r"unknown resource name .*: expected default, ROOTCA"):
        file_resource(name)


@pytest.mark.parametrize("name", ["file-root:/a\0b", "file-cert:/a~/b\0"])
def test_a_path_that_no_system_has_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a path has no NUL"):
        file_resource(name)
