import re

import pytest

from bootstrap.stats import intervals, stats_config

PREFIX = "sidecar.istio.io/"
FLUSH, EVICTION = f"{PREFIX}statsFlushInterval", f"{PREFIX}statsEvictionInterval"
BUCKETS = f"{PREFIX}statsHistogramBuckets"
REQUIRED_PREFIXES = ["cluster_manager", "listener_manager", "server", "cluster.xds-grpc", "wasm"]
REQUIRED_SUFFIXES = ["rbac.allowed", "rbac.denied", "shadow_allowed", "shadow_denied"]


class Stats:
    """One stats_config, taken apart."""

    def __init__(
        self,
        config: dict[str, object] | None = None,
        annotations: dict[str, str] | None = None,
        *,
        discovery: bool = False,
        counted: tuple[str, ...] = (),
    ) -> None:
        self.warnings: list[str] = []
        self.config = stats_config(
            config or {},
            {f"{PREFIX}{name}": text for name, text in (annotations or {}).items()},
            ("10.0.0.1", "fd00::1"),
            metadata_discovery=discovery,
            counted=counted,
            warnings=self.warnings,
        )

    def patterns(self, kind: str) -> list[object]:
        matcher = self.config["stats_matcher"]
        assert isinstance(matcher, dict)
        found = [pattern.get(kind) for pattern in matcher["inclusion_list"]["patterns"]]
        return [pattern for pattern in found if pattern]

    def tags(self) -> dict[str, str]:
        tags = self.config["stats_tags"]
        assert isinstance(tags, list)
        return {tag["tag_name"]: tag["regex"] for tag in tags}


def test_by_default_only_what_the_mesh_needs_exists() -> None:
    stats = Stats()

    assert stats.patterns("prefix") == ["reporter=", *REQUIRED_PREFIXES, "component", "istio"]
    assert stats.patterns("suffix") == REQUIRED_SUFFIXES
    assert stats.patterns("safe_regex") == [{"regex": r"vhost\..*\.route\..*"}]
    assert stats.config["use_all_default_tags"] is False
    assert "histogram_bucket_settings" not in stats.config


def test_discovery_and_connections_are_counted_on_demand() -> None:
    stats = Stats(discovery=True, counted=("downstream_cx_active",))

    assert stats.patterns("prefix")[:2] == ["reporter=", "workload_discovery"]
    assert stats.patterns("suffix") == [*REQUIRED_SUFFIXES, "downstream_cx_active"]


def test_an_annotation_replaces_the_configured_patterns() -> None:
    config: dict[str, object] = {
        "proxyStatsMatcher": {"inclusionPrefixes": ["a"], "inclusionSuffixes": ["b"]}
    }

    configured = Stats(config, {"statsInclusionPrefixes": ""})
    annotated = Stats(config, {"statsInclusionPrefixes": "x, y"})

    assert configured.patterns("prefix")[1] == "a"
    assert annotated.patterns("prefix")[1:3] == ["x", " y"]
    assert "a" not in annotated.patterns("prefix")
    assert annotated.patterns("suffix")[0] == "b"


def test_empty_patterns_are_skipped() -> None:
    stats = Stats(
        {"proxyStatsMatcher": {"inclusionSuffixes": [""]}}, {"statsInclusionRegexps": "a,,"}
    )

    assert stats.patterns("safe_regex")[0] == {"regex": "a"}
    assert len(stats.patterns("safe_regex")) == 2
    assert stats.patterns("suffix") == REQUIRED_SUFFIXES


def test_a_pattern_is_repeated_for_each_address() -> None:
    stats = Stats({}, {"statsInclusionSuffixes": "{pod_ip}_{pod_ip},b"})

    assert stats.patterns("suffix")[:3] == ["10.0.0.1_10.0.0.1", "fd00::1_fd00::1", "b"]


def test_extra_tags_stand_between_the_built_in_ones() -> None:
    stats = Stats({"extraStatTags": ["one", "two"]}, {"extraStatTags": "two,,three"})

    names = list(stats.tags())
    start = names.index("mongo_prefix")
    assert names[start : start + 5] == ["mongo_prefix", "one", "two", "three", "cache"]
    assert stats.tags()["two"] == r"(two=\.=(.*?);\.;)"


def test_a_tag_that_breaks_its_pattern_is_left_out() -> None:
    stats = Stats({"extraStatTags": ["a(", "b"]})

    assert "b" in stats.tags()
    assert "a(" not in stats.tags()
    assert stats.warnings == ["extra statistics tag 'a(': expected a plain name; it is ignored"]


@pytest.mark.parametrize(
    ("tag", "name", "groups"),
    [
        ("cluster_name", "cluster.xds-grpc;.upstream_rq_retry", (".xds-grpc;", "xds-grpc")),
        (
            "http_conn_manager_prefix",
            "http.inbound_0.0.0.0;.jwt_authn.allowed",
            ("inbound_0.0.0.0;.", "inbound_0.0.0.0"),
        ),
        (
            "http_conn_manager_prefix",
            "http.inbound_[2001:db8::1];.jwt_authn.allowed",
            ("inbound_[2001:db8::1];.", "inbound_[2001:db8::1]"),
        ),
    ],
)
def test_tags_are_cut_out_of_names(tag: str, name: str, groups: tuple[str, str]) -> None:
    pattern = Stats().tags()[tag].replace("[:digit:]", r"\d")  # Python has no POSIX classes

    match = re.search(pattern, name)

    assert match
    assert match.groups()[:2] == groups


def test_histogram_buckets_are_sorted_by_prefix() -> None:
    stats = Stats({}, {"statsHistogramBuckets": '{"istio": [1, 0.5], "envoy": [2]}'})

    assert stats.config["histogram_bucket_settings"] == [
        {"match": {"prefix": "envoy"}, "buckets": [2]},
        {"match": {"prefix": "istio"}, "buckets": [1, 0.5]},
    ]


@pytest.mark.parametrize(
    "buckets",
    ['"x"', "[]", "[0]", "[-1]", '["1"]', "[true]", "[1, 1]", "[NaN]", "[1e999]", "null"],
)
def test_buckets_that_envoy_refuses_are_left_out(buckets: str) -> None:
    stats = Stats({}, {"statsHistogramBuckets": f'{{"a": {buckets}, "b": [1]}}'})

    assert stats.config["histogram_bucket_settings"] == [{"match": {"prefix": "b"}, "buckets": [1]}]
    assert "found 'a'; it is ignored" in stats.warnings[0]


@pytest.mark.parametrize("text", ["[", "[]", "5", "[" * 100000, '{"": [1]}'])
def test_bad_buckets_are_ignored(text: str) -> None:
    stats = Stats({}, {"statsHistogramBuckets": text})

    assert "histogram_bucket_settings" not in stats.config
    assert stats.warnings[0].startswith(f"annotation {BUCKETS}: expected ")


@pytest.mark.parametrize(
    ("flush", "eviction", "expected"),
    [
        ("1m", "", {"stats_flush_interval": "60s"}),
        (
            "500ms",
            "1500ms",
            {"stats_flush_interval": "0.500s", "stats_eviction_interval": "1.500s"},
        ),
        (
            "1500ms",
            "4500ms",
            {"stats_flush_interval": "1.500s", "stats_eviction_interval": "4.500s"},
        ),
        ("", "10s", {"stats_eviction_interval": "10s"}),
        ("", "", {}),
    ],
)
def test_intervals_are_exact(flush: str, eviction: str, expected: dict[str, str]) -> None:
    """Defects 30 and 32 of bootstrap.md section 8."""
    warnings: list[str] = []

    found = intervals({FLUSH: flush, EVICTION: eviction}, warnings)

    assert found == expected
    assert not warnings


@pytest.mark.parametrize(
    ("flush", "eviction", "expected", "count"),
    [
        ("5", "10s", {"stats_eviction_interval": "10s"}, 1),
        ("0s", "10s", {"stats_eviction_interval": "10s"}, 1),  # defect 31
        ("-1s", "", {}, 1),
        ("300s", "", {}, 1),
        ("999us", "", {}, 1),
        ("", "11s", {}, 1),
        ("2s", "5s", {"stats_flush_interval": "2s"}, 1),
        ("", "0s", {}, 1),
        ("", "-5s", {}, 1),
        ("x", "y", {}, 2),
    ],
)
def test_intervals_that_envoy_refuses_are_ignored(
    flush: str, eviction: str, expected: dict[str, str], count: int
) -> None:
    """Gotcha 18 and defects 31 and 32 of bootstrap.md section 8."""
    warnings: list[str] = []

    found = intervals({FLUSH: flush, EVICTION: eviction}, warnings)

    assert found == expected
    assert len(warnings) == count
    assert all(warning.endswith("it is ignored") for warning in warnings)
