"""Manifests: which image, which layer. Section 3.5, T-W9, T-W10."""

import json
from typing import Any

import pytest

from agent.wasm.fetch.registry.image import (
    DOCKER_INDEX,
    DOCKER_LAYER,
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    WASM_LAYER,
    Layer,
    Manifest,
    bad_format,
    choose_layers,
    read_manifest,
)

ONE, TWO = (f"sha256:{digit * 64}" for digit in "12")


def layers(*pairs: tuple[str, str]) -> bytes:
    described = [{"digest": digest, "mediaType": kind} for digest, kind in pairs]
    return json.dumps({"layers": described}).encode()


def manifest(*kinds: str, is_docker: bool = False) -> Manifest:
    return Manifest(is_docker, tuple(Layer(ONE, kind) for kind in kinds))


@pytest.mark.parametrize(
    ("media_type", "is_docker"),
    [
        (DOCKER_MANIFEST, True),
        (OCI_MANIFEST, False),
        (f"{DOCKER_MANIFEST}; charset=utf-8", True),
        ("application/octet-stream", False),
    ],
)
def test_a_manifest_names_its_layers(media_type: str, *, is_docker: bool) -> None:
    found = read_manifest(layers((ONE, "a"), (TWO, "b")), media_type)

    assert found == Manifest(is_docker, (Layer(ONE, "a"), Layer(TWO, "b")))


def test_a_manifest_may_say_itself_what_it_is() -> None:
    said = {"mediaType": DOCKER_MANIFEST, "layers": []}

    assert read_manifest(json.dumps(said).encode(), "text/plain") == Manifest(
        is_docker=True, layers=()
    )


def child(digest: str, **platform: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"digest": digest, **({"platform": platform} if platform else {})}


@pytest.mark.parametrize("media_type", [DOCKER_INDEX, OCI_INDEX, ""])
@pytest.mark.parametrize(
    "children",
    [
        [
            child(TWO, os="linux", architecture="arm64"),
            child(ONE, os="linux", architecture="amd64"),
        ],
        [child(ONE), child(TWO, os="linux", architecture="amd64")],
    ],
)
def test_of_an_index_the_usual_platform_counts(
    media_type: str, children: list[dict[str, Any]]
) -> None:
    assert read_manifest(json.dumps({"manifests": children}).encode(), media_type) == ONE


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"x", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no JSON object"),
        (b'{"layers": {"a": 1}}', "'layers' is no list"),
        (b'{"layers": [5]}', "'layers' is no list"),
        (b'{"layers": [{}]}', "None is no sha256 digest"),
        (b'{"layers": [{"digest": "sha256:../../x"}]}', "is no sha256 digest"),
        (b'{"manifests": []}', "no image for linux/amd64"),
        (b'{"manifests": [{"platform": {"os": "windows"}}]}', "no image for linux/amd64"),
    ],
)
def test_what_is_no_manifest_is_refused(body: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_manifest(body, "")


def test_dockers_module_is_in_the_last_layer() -> None:
    choices = choose_layers(manifest(OCI_LAYER, DOCKER_LAYER, is_docker=True))

    assert choices == (Layer(ONE, DOCKER_LAYER), None, ())


def test_a_compatible_images_module_is_in_the_last_layer() -> None:
    archive, module, problems = choose_layers(manifest("x", "y", OCI_LAYER))

    assert (archive, module) == (Layer(ONE, OCI_LAYER), None)
    assert problems == ("there are 3 layers, expected 2 of an artifact",)


@pytest.mark.parametrize("kinds", [(WASM_LAYER, "config"), ("config", WASM_LAYER)])
def test_an_artifacts_module_is_a_layer_of_its_own(kinds: tuple[str, str]) -> None:
    archive, module, problems = choose_layers(manifest(*kinds))

    assert (archive, module) == (None, Layer(ONE, WASM_LAYER))
    assert len(problems) == 1


def test_both_may_be_there() -> None:
    archive, module, problems = choose_layers(manifest(WASM_LAYER, OCI_LAYER))

    assert (archive, module) == (Layer(ONE, OCI_LAYER), Layer(ONE, WASM_LAYER))
    assert problems == ()


@pytest.mark.parametrize(
    ("found", "reasons"),
    [
        (manifest(is_docker=True), ["there is no layer"]),
        (manifest(OCI_LAYER, is_docker=True), [f"expected '{DOCKER_LAYER}'"]),
        (manifest(), ["there is no layer", "there are 0 layers"]),
        (manifest("x"), [f"is 'x', expected '{OCI_LAYER}'", "there are 1 layers"]),
        (manifest("x", "y"), ["is 'y', expected", f"no layer is '{WASM_LAYER}'"]),
    ],
)
def test_an_image_without_module_says_all_that_is_wrong(
    found: Manifest, reasons: list[str]
) -> None:
    with pytest.raises(ValueError, match="is in invalid format as an OCI image: ") as caught:
        choose_layers(found)

    assert [reason for reason in reasons if reason not in str(caught.value)] == []


def test_reasons_are_joined() -> None:
    assert bad_format(["a", "b"]).endswith("as an OCI image: a; b")
