"""Modules from registries. Section 3.5, T-W4, T-W9, T-W10."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent.wasm.fetch.registry.image import OCI_LAYER, OCI_MANIFEST, WASM_LAYER
from agent.wasm.order import Fetched
from tests.fakes.archives import tar_gz
from tests.fakes.fetching import Names, fetching
from tests.fakes.registry import PUBLIC, FakeRegistry, digest_of, pulling
from tests.fakes.wasm import MODULE
from tests.fakes.web import server_context, web_server


@pytest.mark.parametrize("push", ["push_docker", "push_compatible", "push_artifact"])
async def test_the_module_of_an_image_is_found(tmp_path: Path, push: str) -> None:
    """T-W9: the checksum is the digest of the manifest."""
    registry = FakeRegistry()
    digest = getattr(registry, push)("v1")
    async with pulling(tmp_path, registry) as (bench, host):
        by_tag = await bench.fetched(f"oci://{host}/owner/image:v1")
        by_digest = await bench.fetched(f"oci://{host}/owner/image@{digest}", by_tag)

    assert digest == f"sha256:{by_tag}"
    assert by_digest == by_tag
    assert list(bench.modules().values()) == [MODULE]


@pytest.mark.parametrize("docker", [True, False])
async def test_of_an_index_the_usual_platform_is_pulled(tmp_path: Path, *, docker: bool) -> None:
    registry = FakeRegistry()
    index, image = registry.push_index("v1", docker=docker)
    async with pulling(tmp_path, registry) as (bench, host):
        assert f"sha256:{await bench.fetched(f'oci://{host}/owner/image:v1')}" == image
        wanted = index.removeprefix("sha256:")
        outcome = await bench.refused(f"oci://{host}/owner/image@{index}", wanted)

    assert outcome.result == "checksum_mismatched"


async def test_a_version_that_is_there_is_not_pulled(tmp_path: Path) -> None:
    registry = FakeRegistry()
    checksum = registry.push_docker("v1").removeprefix("sha256:")
    async with pulling(tmp_path, registry) as (bench, host):
        outcome = await bench.fetch(f"oci://{host}/owner/image:v1", known=("0", checksum))

    assert outcome == Fetched(checksum, is_new=False)
    assert not [path for path in registry.paths if "/blobs/" in path]


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ([], "there is no layer"),
        ([("x", MODULE)], "the last layer is 'x'"),
        ([(WASM_LAYER, MODULE), ("x", b"x"), ("y", b"y")], "there are 3 layers"),
        ([(OCI_LAYER, tar_gz(("other", MODULE)))], "layer holds no plugin.wasm: no such file"),
        ([(OCI_LAYER, b"no archive")], "layer holds no plugin.wasm: Not a gzipped"),
    ],
)
async def test_an_image_without_module_is_refused(
    tmp_path: Path, layers: list[tuple[str, bytes]], reason: str
) -> None:
    """T-W10."""
    registry = FakeRegistry()
    registry.push("v1", OCI_MANIFEST, layers)
    async with pulling(tmp_path, registry) as (bench, host):
        outcome = await bench.refused(f"oci://{host}/owner/image:v1")

    assert outcome.result == "download_failure"
    assert outcome.reason.startswith(
        "could not fetch Wasm binary: the given image is in invalid format as an OCI image: "
    )
    assert reason in outcome.reason


async def test_a_second_layer_is_tried_where_the_archive_has_no_module(tmp_path: Path) -> None:
    registry = FakeRegistry()
    registry.push("v1", OCI_MANIFEST, [(WASM_LAYER, MODULE), (OCI_LAYER, b"no archive")])
    async with pulling(tmp_path, registry) as (bench, host):
        await bench.fetched(f"oci://{host}/owner/image:v1")

    assert list(bench.modules().values()) == [MODULE]


async def test_what_is_not_what_its_digest_says_is_refused(tmp_path: Path) -> None:
    registry = FakeRegistry()
    digest = registry.push_artifact("v1")
    registry.spoil(digest_of(MODULE))
    async with pulling(tmp_path, registry) as (bench, host):
        layer = await bench.refused(f"oci://{host}/owner/image:v1")
        registry.spoil(digest)
        manifest = await bench.refused(f"oci://{host}/owner/image@{digest}")

    assert "could not fetch Wasm binary: layer has digest sha256:" in layer.reason
    assert "could not fetch Wasm OCI image: manifest has digest sha256:" in manifest.reason
    assert manifest.result == "manifest_failure"


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ("owner/none:v1", "status 404"),
        ("owner/image:none", "status 404"),
        ("owner/image@sha256:1", "expected a digest"),
        ("owner/image:text", "manifest is no JSON"),
        ("owner/image:nested", "an index holds another index"),
    ],
)
async def test_what_is_no_image_is_refused(tmp_path: Path, image: str, reason: str) -> None:
    registry = FakeRegistry()
    inner, _ = registry.push_index("inner")
    registry.put("nested", "", {"manifests": [{"digest": inner}]})
    registry.put_text("text", b"hello")
    async with pulling(tmp_path, registry) as (bench, host):
        outcome = await bench.refused(f"oci://{host}/{image}")

    assert outcome.result == "manifest_failure"
    assert outcome.reason.startswith("could not fetch Wasm OCI image: ")
    assert reason in outcome.reason


async def test_an_answer_that_never_ends_is_no_manifest(tmp_path: Path) -> None:
    registry = FakeRegistry()
    registry.put_text("v1", b"x" * 5_000_000)
    async with pulling(tmp_path, registry) as (bench, host):
        outcome = await bench.refused(f"oci://{host}/owner/image:v1")

    assert outcome.reason.endswith("answer is longer than 4194304 bytes")


@pytest.mark.parametrize("limit", [20, 4000])
async def test_no_more_is_pulled_than_allowed(tmp_path: Path, limit: int) -> None:
    """R-24: neither of a layer, nor out of it."""
    registry = FakeRegistry()
    registry.push_docker("v1", MODULE + b"x" * 50_000)
    async with pulling(tmp_path, registry, max_bytes=limit) as (bench, host):
        outcome = await bench.refused(f"oci://{host}/owner/image:v1")

    assert f"ISTIO_WASM_MAX_BINARY_SIZE_BYTES={limit}; raise it" in outcome.reason


@pytest.mark.parametrize("failures", [[503], [200, 429, 408], [200, 200, 500], [0, 0]])
async def test_what_may_pass_is_tried_again(tmp_path: Path, failures: list[int]) -> None:
    registry = FakeRegistry(failures=failures)
    registry.push_docker("v1")
    async with pulling(tmp_path, registry) as (bench, host):
        await bench.fetched(f"oci://{host}/owner/image:v1")


async def test_a_name_server_that_is_late_is_asked_again(tmp_path: Path) -> None:
    registry = FakeRegistry()
    registry.push_docker("v1")
    names = Names({PUBLIC: "127.0.0.1"}, failures=2)
    async with web_server(registry) as port, fetching(tmp_path, names=names) as bench:
        await bench.fetched(f"oci://{PUBLIC}:{port}/owner/image:v1")

    assert [round(pause) for pause in bench.pauses] == [1, 3]


async def test_a_registry_that_always_fails_is_given_up(tmp_path: Path) -> None:
    registry = FakeRegistry(failures=[200, *[503] * 5])
    registry.push_docker("v1")
    async with pulling(tmp_path, registry) as (bench, host):
        outcome = await bench.refused(f"oci://{host}/owner/image:v1")

    assert outcome.reason == "could not fetch Wasm OCI image: status 503"
    assert [round(pause) for pause in bench.pauses] == [1, 3]
    assert len([path for path in registry.paths if "/manifests/" in path]) == 3


@pytest.mark.parametrize("seconds", [0, -1])
async def test_without_time_no_registry_is_asked(tmp_path: Path, seconds: float) -> None:
    registry = FakeRegistry()
    async with pulling(tmp_path, registry) as (bench, host):
        outcome = await bench.refused(f"oci://{host}/owner/image:v1", seconds=seconds)

    assert outcome.reason == "could not fetch Wasm OCI image: timed out"
    assert registry.paths == []


# With and without TLS.


async def test_with_tls_the_certificate_counts(tmp_path: Path) -> None:
    registry = FakeRegistry()
    registry.push_docker("v1")
    (tmp_path / "cache").mkdir()
    names = {"registry.example.com": "127.0.0.1"}
    async with web_server(registry, tls=server_context(tmp_path)) as port:
        host = f"registry.example.com:{port}"
        async with fetching(tmp_path / "cache", names=names) as bench:
            outcome = await bench.refused(f"oci://{host}/owner/image:v1")
        async with fetching(tmp_path / "cache", names=names, insecure=(host,)) as bench:
            await bench.fetched(f"oci://{host}/owner/image:v1")

    assert "certificate is refused" in outcome.reason


async def test_a_registry_that_answers_in_http_is_asked_in_http(tmp_path: Path) -> None:
    registry = FakeRegistry()
    registry.push_docker("v1")
    async with pulling(tmp_path, registry) as (bench, host):
        await bench.fetched(f"oci://{host.replace('127.0.0.1', PUBLIC)}/owner/image:v1")


@asynccontextmanager
async def silent_in_tls(port: int) -> AsyncIterator[int]:
    """Pass connections on to a port, but for those that begin with TLS; yield a port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(65536)
        if first.startswith(b"GET"):
            back, forth = await asyncio.open_connection("127.0.0.1", port)
            forth.write(first)
            writer.write(await back.read())
            forth.close()
        else:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_registry_nearby_that_is_silent_in_tls_is_asked_in_http(tmp_path: Path) -> None:
    """A TLS greeting that nobody answers, as behind some load balancers."""
    registry = FakeRegistry()
    registry.push_docker("v1")
    async with (
        web_server(registry) as port,
        silent_in_tls(port) as front,
        fetching(tmp_path) as bench,
    ):
        await bench.fetched(f"oci://127.0.0.1:{front}/owner/image:v1")


async def test_a_registry_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    async with fetching(tmp_path, names={PUBLIC: "127.0.0.1"}) as bench:
        near = await bench.refused("oci://127.0.0.1:1/owner/image:v1")
        far = await bench.refused(f"oci://{PUBLIC}:1/owner/image:v1")
        blocked = await bench.refused("oci://169.254.169.254/owner/image:v1")

    assert "https: " in near.reason
    assert "http: " in near.reason
    assert far.reason.startswith("could not fetch Wasm OCI image: ")
    assert "169.254.0.0/16" in blocked.reason
    assert bench.pauses == []
