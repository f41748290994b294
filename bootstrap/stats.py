"""Which of Envoy's statistics exist, how often they are flushed, and what is a tag in their names.

Envoy refuses its whole configuration for one bad pattern, bucket or interval, so what it would
refuse is left out here, with a warning. Source: bootstrap.md section 5.7.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from bootstrap.document import Document
from bootstrap.durations import MILLISECOND, SECOND, format_duration, parse_duration

Annotations = Mapping[str, str]

EXTRA_TAGS: Final = "sidecar.istio.io/extraStatTags"
BUCKETS: Final = "sidecar.istio.io/statsHistogramBuckets"
FLUSH: Final = "sidecar.istio.io/statsFlushInterval"
EVICTION: Final = "sidecar.istio.io/statsEvictionInterval"
#: Replaced by each of the pod's addresses.
POD_IP: Final = "{pod_ip}"

#: Envoy's own default and what it takes (envoy/config/bootstrap/v3/bootstrap.proto).
DEFAULT_FLUSH: Final = 5 * SECOND
FLUSH_LIMITS: Final = (MILLISECOND, 300 * SECOND)

TAGS_BEFORE: Final = (
    ("cluster_name", r"^cluster(\.(.+);)"),
    (
        "http_conn_manager_prefix",
        r"^http\.(((?:[_.[:digit:]\w]*|[_\[\]aAbBcCdDeEfF[:digit:]\w\:]*));\.)",
    ),
    ("thread_name", r"^server(\.(.+))\.watchdog"),
    ("tcp_prefix", r"^tcp\.((.*?)\.)\w+?$"),
    ("response_code", r"_rq(_(\d{3}))$"),
    ("response_code_class", r"_rq(_(\dxx))$"),
    (
        "http_conn_manager_listener_prefix",
        r"^listener(?=\.).*?\.http\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)",
    ),
    (
        "listener_address",
        r"^listener\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)",
    ),
    (
        "mongo_prefix",
        r"^mongo\.(.+?)\.(collection|cmd|cx_|op_|delays_|decoding_)(.*?)$",
    ),
)
TAGS_AFTER: Final = (
    ("cache", r"(cache\.(.+?)\.)"),
    ("component", r"(component\.(.+?)\.)"),
    ("tag", r"(tag\.(.+?);\.)"),
    ("wasm_filter", r"(wasm_filter\.(.+?)\.)"),
    ("authz_enforce_result", r"rbac(\.(allowed|denied))"),
    ("authz_dry_run_action", r"(\.istio_dry_run_(allow|deny)_)"),
    ("authz_dry_run_result", r"(\.shadow_(allowed|denied))"),
)
#: Of regular expressions: an extra tag's name stands in one, and Envoy refuses a broken one.
META_CHARACTERS: Final = frozenset("()[]{}*+?|^$\\")
#: The agent's readiness depends on these prefixes.
PREFIXES: Final = ("cluster_manager", "listener_manager", "server", "cluster.xds-grpc", "wasm")
SUFFIXES: Final = ("rbac.allowed", "rbac.denied", "shadow_allowed", "shadow_denied")
REGEXPS: Final = (r"vhost\..*\.route\..*",)


def stats_config(
    config: Mapping[str, object],
    annotations: Annotations,
    addresses: Sequence[str],
    *,
    metadata_discovery: bool,
    counted: Sequence[str],
    warnings: list[str],
) -> Document:
    """Return Envoy's `stats_config`.

    Args:
        config: ProxyConfig as canonical proto JSON.
        annotations: the pod's.
        addresses: the pod's, for patterns that hold `{pod_ip}`.
        metadata_discovery: include the statistics of workload discovery.
        counted: suffixes of statistics that the agent counts at the end.
        warnings: gains a line for what is left out.
    """
    given = cast("Mapping[str, Sequence[str]]", config.get("proxyStatsMatcher", {}))

    def patterns(kind: str, required: Iterable[str]) -> list[str]:
        annotated = annotations.get(f"sidecar.istio.io/statsInclusion{kind}", "")
        own = annotated.split(",") if annotated else given.get(f"inclusion{kind}", ())
        return [*_expanded(filter(None, own), addresses), *required]

    inclusion: list[Document] = [{"prefix": "reporter="}]
    if metadata_discovery:
        inclusion.append({"prefix": "workload_discovery"})
    inclusion += [{"prefix": prefix} for prefix in patterns("Prefixes", PREFIXES)]
    inclusion += [{"suffix": suffix} for suffix in patterns("Suffixes", (*SUFFIXES, *counted))]
    inclusion += [{"safe_regex": {"regex": regex}} for regex in patterns("Regexps", REGEXPS)]
    inclusion += [{"prefix": "component"}, {"prefix": "istio"}]
    tags = cast("Sequence[str]", config.get("extraStatTags", ()))
    result: Document = {
        "use_all_default_tags": False,
        "stats_tags": _stats_tags([*tags, *annotations.get(EXTRA_TAGS, "").split(",")], warnings),
        "stats_matcher": {"inclusion_list": {"patterns": inclusion}},
    }
    if buckets := _buckets(annotations.get(BUCKETS, ""), warnings):
        result["histogram_bucket_settings"] = buckets
    return result


def intervals(annotations: Annotations, warnings: list[str]) -> Document:
    """Return `stats_flush_interval` and `stats_eviction_interval` where annotations set them.

    Source: bootstrap.md section 8, 18 and defects 30 to 32.
    """
    result: Document = {}
    flush = _interval(annotations, FLUSH, "from 1ms up to 300s", warnings)
    if flush is not None and not FLUSH_LIMITS[0] <= flush < FLUSH_LIMITS[1]:
        _ignore(FLUSH, annotations, "a duration from 1ms up to 300s", warnings)
        flush = None
    if flush is not None:
        result["stats_flush_interval"] = format_duration(flush)
    flush = flush or DEFAULT_FLUSH
    eviction = _interval(annotations, EVICTION, "above 0s", warnings)
    if eviction is not None and (eviction <= 0 or eviction % flush):
        expected = f"a multiple of the flush interval, {format_duration(flush)}"
        _ignore(EVICTION, annotations, expected, warnings)
    elif eviction is not None:
        result["stats_eviction_interval"] = format_duration(eviction)
    return result


def _interval(annotations: Annotations, name: str, limits: str, warnings: list[str]) -> int | None:
    text = annotations.get(name)
    try:
        return parse_duration(text) if text else None
    except ValueError:
        _ignore(name, annotations, f"a duration {limits}", warnings)
        return None


def _ignore(name: str, annotations: Annotations, expected: str, warnings: list[str]) -> None:
    warnings.append(f"annotation {name}={annotations[name]!r}: expected {expected}; it is ignored")


def _expanded(patterns: Iterable[str], addresses: Sequence[str]) -> Iterable[str]:
    for pattern in patterns:
        if POD_IP in pattern:
            yield from (pattern.replace(POD_IP, address) for address in addresses)
        else:
            yield pattern


def _stats_tags(extra: Iterable[str], warnings: list[str]) -> list[Document]:
    named: list[tuple[str, str]] = []
    for tag in dict.fromkeys(filter(None, extra)):
        if META_CHARACTERS.isdisjoint(tag):
            named.append((tag, rf"({tag}=\.=(.*?);\.;)"))
        else:
            warnings.append(f"extra statistics tag {tag!r}: expected a plain name; it is ignored")
    return [
        {"tag_name": name, "regex": regex} for name, regex in (*TAGS_BEFORE, *named, *TAGS_AFTER)
    ]


def _buckets(text: str, warnings: list[str]) -> list[Document]:
    """Return the histogram buckets by prefix, sorted; unusable ones are left out."""
    if not text:
        return []
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        warnings.append(f'annotation {BUCKETS}: expected JSON such as {{"istio":[1,5]}}; ignored')
        return []
    result: list[Document] = []
    for prefix in sorted(parsed):
        if prefix and _are_buckets(parsed[prefix]):
            result.append({"match": {"prefix": prefix}, "buckets": parsed[prefix]})
        else:
            warnings.append(
                f"annotation {BUCKETS}: expected a prefix with different numbers above 0,"
                f" found {prefix!r}; it is ignored"
            )
    return result


def _are_buckets(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(type(bound) in (int, float) and 0 < bound < float("inf") for bound in value)
        and len(set(value)) == len(value)
    )
