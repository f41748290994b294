"""Merging: who wins, and that nothing but our own error leaves it."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from bootstrap.config import CONFIG_ANNOTATION, DEFAULTS, ProxyConfig, Sources, resolve_proxy_config
from bootstrap.errors import BootstrapError
from tests.property.strategies_bootstrap import ADDRESSES, DOCUMENTS, PAIRS, TEXT

Document = dict[str, object]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
#: Right names with any value at all.
NEARLY = st.dictionaries(
    st.sampled_from(
        ["configPath", "drain_duration", "tracing", "proxyMetadata", "proxyHeaders", "concurrency",
         "serviceCluster", "tracingServiceName", "connectionSettings", "extraStatTags",
         "privateKeyProvider", "envoyMetricsService", "proxyAdminPort", "readinessProbe"]
    ),
    JSON | st.fixed_dictionaries({"zipkin": JSON, "tlsSettings": JSON}),
    max_size=4,
)  # fmt: skip


def resolve(mesh: Document, environment: Document, annotation: Document) -> ProxyConfig:
    texts = [json.dumps(each) for each in (environment, annotation)]
    sources = Sources(json.dumps({"defaultConfig": mesh}), texts[0], {CONFIG_ANNOTATION: texts[1]})
    return resolve_proxy_config(sources)[0]


@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_the_highest_source_that_sets_a_field_wins(
    mesh: Document, environment: Document, annotation: Document
) -> None:
    found = resolve(mesh, environment, annotation).document

    for name in {*DEFAULTS, *mesh, *environment, *annotation} - {"proxyMetadata", "runtimeValues"}:
        levels = (annotation, environment, mesh, DEFAULTS)
        expected = next(level[name] for level in levels if name in level)
        assert found[name] == without_empty(expected)


def without_empty(value: object) -> object:
    """Return the value as proto JSON prints it: without empty lists below."""
    if isinstance(value, dict):
        return {key: without_empty(each) for key, each in value.items() if each != []}
    return value


@given(PAIRS, PAIRS, PAIRS)
def test_metadata_merges_by_key(
    mesh: dict[str, str], environment: dict[str, str], annotation: dict[str, str]
) -> None:
    low, middle, high = ({"proxyMetadata": pairs} for pairs in (mesh, environment, annotation))

    found = resolve({**low}, {**middle}, {**high})

    assert found.proxy_metadata == {**mesh, **environment, **annotation}


@given(DOCUMENTS)
def test_merging_is_idempotent(document: Document) -> None:
    once = resolve(document, {}, {})

    assert resolve(document, document, document) == once
    assert resolve({}, {}, dict(once.document)) == once


def resolved(sources: Sources) -> ProxyConfig | tuple[str, ...]:
    """Return the configuration, or the lines about why there is none."""
    try:
        return resolve_proxy_config(sources)[0]
    except BootstrapError as error:
        return error.problems


@given(TEXT | NEARLY.map(json.dumps) | JSON.map(json.dumps))
@example('{"serviceCluster": "\\ud800"}')
@example("proxyMetadata: !!int ''")
def test_no_text_raises_anything_but_our_error(text: str) -> None:
    for sources in (
        Sources(None, text, {}),
        Sources(text, "", {}),
        Sources(f"defaultConfig: {text}", "", {}),
        Sources(None, "", {CONFIG_ANNOTATION: text}),
    ):
        found = resolved(sources)

        if isinstance(found, ProxyConfig):
            json.dumps(dict(found.document), allow_nan=False)
        else:
            assert found
            assert not [line for line in found if "\n" in line]


@given(ADDRESSES | TEXT, TEXT)
def test_no_annotation_raises_anything_but_our_error(address: str, port: str) -> None:
    annotations = {
        "sidecar.istio.io/discoveryAddress": address,
        "status.sidecar.istio.io/port": port,
    }

    found = resolved(Sources(None, "", annotations))

    if isinstance(found, ProxyConfig):
        assert 0 <= found.status_port <= 65535
        assert found.discovery_address in (address, DEFAULTS["discoveryAddress"])
    else:
        assert repr(address) in found[0]
