"""What pods may configure: documents of ProxyConfig, annotations and environments."""

import json

from hypothesis import strategies as st

WORDS = st.text("abcXYZ019_.-", min_size=1, max_size=8)
#: Anything an environment can hold: no NUL, and bytes that are no UTF-8 as lone surrogates.
TEXT = st.text(st.characters(exclude_characters="\0"), max_size=20)
HOSTS = st.sampled_from(["localhost", "zipkin.ns.svc", "10.0.0.9", "[fd00::9]"])
PORTS = st.integers(1, 65535)
ADDRESSES = st.builds("{}:{}".format, HOSTS, PORTS)
SECONDS = st.integers(1, 299).map("{}s".format)
TLS = st.fixed_dictionaries(
    {"mode": st.sampled_from(["SIMPLE", "ISTIO_MUTUAL"])},
    optional={"sni": WORDS, "caCertificates": st.just("/ca.pem")},
) | st.fixed_dictionaries(
    {
        "mode": st.just("MUTUAL"),
        "clientCertificate": WORDS,
        "privateKey": WORDS,
        "caCertificates": WORDS,
        "subjectAltNames": st.lists(WORDS, max_size=2),
    }
)
SERVICES = st.fixed_dictionaries(
    {"address": ADDRESSES},
    optional={
        "tlsSettings": TLS,
        "tcpKeepalive": st.fixed_dictionaries({}, optional={"probes": PORTS, "time": SECONDS}),
    },
)
TRACERS = st.sampled_from(["zipkin", "datadog"])
TRACING = st.builds(
    lambda tracer, address, tls: {
        tracer: {"address": address},
        **({"tlsSettings": tls} if tls else {}),
    },
    TRACERS,
    ADDRESSES | PORTS.map("$(HOST_IP):{}".format),
    st.none() | TLS,
)
PAIRS = st.dictionaries(WORDS, st.sampled_from(["true", "false", "", "5"]) | WORDS, max_size=3)
PATTERNS = st.lists(TEXT.filter(lambda text: "\ufffe" not in text), max_size=3)

#: Valid documents of ProxyConfig, all of whose fields are set to something that is not zero.
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "serviceCluster": WORDS,
        "drainDuration": SECONDS,
        "discoveryAddress": ADDRESSES,
        "proxyAdminPort": PORTS,
        "statusPort": PORTS,
        "statsdUdpAddress": st.just("10.0.0.1:8125") | ADDRESSES,
        "tracing": st.just({}) | TRACING,
        "envoyMetricsService": SERVICES,
        "envoyAccessLogService": SERVICES,
        "proxyMetadata": PAIRS,
        "runtimeValues": PAIRS,
        "extraStatTags": st.lists(WORDS, min_size=1, max_size=3),
        "proxyStatsMatcher": st.fixed_dictionaries(
            {}, optional={"inclusionPrefixes": PATTERNS, "inclusionSuffixes": PATTERNS}
        ),
        "statsCompression": st.booleans(),
        "connectionSettings": st.fixed_dictionaries(
            {}, optional={"globalDownstreamConnectionLimit": PORTS}
        ),
    },
)
BUCKETS = st.dictionaries(
    WORDS | st.just(""), st.lists(st.integers(-2, 9) | st.floats(0, 9), max_size=3), max_size=2
)
DURATIONS = st.builds(
    "{}{}".format, st.integers(-5, 5000), st.sampled_from(["ms", "s", "us", "m", ""])
)
ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        f"sidecar.istio.io/{name}": strategy
        for name, strategy in {
            "statsInclusionPrefixes": PATTERNS.map(",".join) | st.just("a,,{pod_ip}_"),
            "statsInclusionSuffixes": PATTERNS.map(",".join),
            "statsHistogramBuckets": BUCKETS.map(json.dumps),
            "statsFlushInterval": DURATIONS,
            "statsEvictionInterval": DURATIONS,
            "extraStatTags": st.lists(TEXT, max_size=2).map(",".join),
        }.items()
    },
)
SWITCHES = st.sampled_from(["true", "false", "1", "yes", ""])
ENVIRONS = st.fixed_dictionaries(
    {"POD_NAME": WORDS, "POD_NAMESPACE": WORDS},
    optional={
        "ISTIO_DUAL_STACK": SWITCHES,
        "ISTIO_DELTA_XDS": SWITCHES,
        "ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL": SWITCHES,
        "EXIT_ON_ZERO_ACTIVE_CONNECTIONS": SWITCHES,
        "ISTIO_META_ENABLE_SELF_DISCOVERY": SWITCHES,
        "ENVOY_SECURE_METRICS_PORT": st.sampled_from(["0", "15091", "x"]),
        "ENVOY_SECURE_MERGED_METRICS_PORT": st.sampled_from(["0", "15092", "65536"]),
        "COMPLIANCE_POLICY": st.sampled_from(["", "fips-140-2", "pqc"]),
        "HOST_IP": st.sampled_from(["", "10.0.0.9", "fd00::9"]),
        "ISTIO_META_ANY": TEXT,
        "ISTIO_META_POD_PORTS": st.sampled_from(["[]", '[{"containerPort":80}]', "x"]),
        "ISTIO_METAJSON_ANY": TEXT | st.dictionaries(WORDS, TEXT, max_size=2).map(json.dumps),
    },
)
POD_ADDRESSES = st.sampled_from(
    [["10.0.0.1"], ["fd00::1"], ["10.0.0.1", "fd00::1"], ["fd00::1", "10.0.0.1"], []]
)
