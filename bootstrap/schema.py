"""The fields of ProxyConfig, as protobuf declares them.

Imported only where a pod configures something. A field that is missing here is ignored and does
not reach the control plane, so a new one of the API needs one line.

Source: istio.mesh.v1alpha1.ProxyConfig; bootstrap.md section 3.6.
"""

from typing import Final

from bootstrap.decode import (
    BOOL,
    BOOL_VALUE,
    CARRIED,
    DOUBLE,
    DURATION,
    EMPTY,
    INT,
    INT64_VALUE,
    INT_VALUE,
    SECRET,
    STRING,
    UINT,
    Field,
    enum,
    mapping,
    message,
    repeated,
)

TLS_SETTINGS: Final = message(
    {
        "mode": enum("DISABLE", "SIMPLE", "MUTUAL", "ISTIO_MUTUAL"),
        "clientCertificate": STRING,
        "privateKey": STRING,
        "caCertificates": STRING,
        "credentialName": STRING,
        "subjectAltNames": repeated(STRING),
        "sni": STRING,
        "insecureSkipVerify": BOOL_VALUE,
        "caCrl": STRING,
    }
)
REMOTE_SERVICE: Final = message(
    {
        "address": STRING,
        "tlsSettings": TLS_SETTINGS,
        "tcpKeepalive": message({"probes": UINT, "time": DURATION, "interval": DURATION}),
    }
)
OPEN_CENSUS_AGENT: Final = message(
    {
        "address": STRING,
        "context": repeated(
            enum("UNSPECIFIED", "W3C_TRACE_CONTEXT", "GRPC_BIN", "CLOUD_TRACE_CONTEXT", "B3")
        ),
    }
)
CUSTOM_TAG: Final = message(
    {
        "literal": message({"value": STRING}),
        "environment": message({"name": STRING, "defaultValue": STRING}),
        "header": message({"name": STRING, "defaultValue": STRING}),
    },
    frozenset(("literal", "environment", "header")),
)
TRACERS: Final = frozenset(("zipkin", "lightstep", "datadog", "stackdriver", "openCensusAgent"))
TRACING: Final = message(
    {
        "zipkin": message({"address": STRING}),
        "lightstep": message({"address": STRING, "accessToken": SECRET}),
        "datadog": message({"address": STRING}),
        "stackdriver": message(
            {
                "debug": BOOL,
                "maxNumberOfAttributes": INT64_VALUE,
                "maxNumberOfAnnotations": INT64_VALUE,
                "maxNumberOfMessageEvents": INT64_VALUE,
            }
        ),
        "openCensusAgent": OPEN_CENSUS_AGENT,
        "customTags": mapping(CUSTOM_TAG),
        "maxPathTagLength": UINT,
        "sampling": DOUBLE,
        "tlsSettings": TLS_SETTINGS,
        "enableIstioTags": BOOL_VALUE,
    },
    TRACERS,
)
FORWARD_CLIENT_CERT: Final = enum(
    "UNDEFINED",
    "SANITIZE",
    "FORWARD_ONLY",
    "APPEND_FORWARD",
    "SANITIZE_SET",
    "ALWAYS_FORWARD_ONLY",
)
SWITCH_OFF: Final = message({"disabled": BOOL_VALUE})
SWITCH_ON: Final = message({"enabled": BOOL_VALUE})
PROXY_HEADERS: Final = message(
    {
        "forwardedClientCert": FORWARD_CLIENT_CERT,
        "setCurrentClientCertDetails": message(
            dict.fromkeys(("subject", "cert", "chain", "dns", "uri"), BOOL_VALUE)
        ),
        "requestId": SWITCH_OFF,
        "server": message({"disabled": BOOL_VALUE, "value": STRING}),
        "attemptCount": SWITCH_OFF,
        "envoyDebugHeaders": SWITCH_OFF,
        "metadataExchangeHeaders": message({"mode": enum("UNDEFINED", "IN_MESH")}),
        "preserveHttp1HeaderCase": BOOL_VALUE,
        "xForwardedHost": SWITCH_ON,
        "xForwardedPort": SWITCH_ON,
    }
)
PROBES: Final = frozenset(("httpGet", "tcpSocket", "exec", "grpc"))
READINESS_PROBE: Final = message(
    {
        "initialDelaySeconds": INT,
        "timeoutSeconds": INT,
        "periodSeconds": INT,
        "successThreshold": INT,
        "failureThreshold": INT,
        "httpGet": message(
            {
                "path": STRING,
                "port": UINT,
                "host": STRING,
                "scheme": STRING,
                "httpHeaders": repeated(message({"name": STRING, "value": STRING})),
            }
        ),
        "tcpSocket": message({"host": STRING, "port": UINT}),
        "exec": message({"command": repeated(STRING)}),
        "grpc": message({"port": UINT, "service": STRING}),
    },
    PROBES,
)
PRIVATE_KEY_ENGINE: Final = message({"pollDelay": DURATION, "fallback": BOOL_VALUE})
CONNECTION_SETTINGS: Final = message(
    {
        "profile": CARRIED,
        "httpHeadersWithUnderscoresAction": CARRIED,
        "httpPathWithEscapedSlashesAction": CARRIED,
        "httpMergeSlashes": BOOL_VALUE,
        "listenerPerConnectionBufferLimitBytes": INT_VALUE,
        "clusterPerConnectionBufferLimitBytes": INT_VALUE,
        "httpIdleTimeout": DURATION,
        "httpRequestTimeout": DURATION,
        "httpStreamIdleTimeout": DURATION,
        "httpRequestHeadersTimeout": DURATION,
        "httpMaxConnectionDuration": DURATION,
        "httpMaxStreamDuration": DURATION,
        "httpDrainTimeout": DURATION,
        "httpMaxConcurrentStreams": INT_VALUE,
        "http2InitialStreamWindowSize": INT_VALUE,
        "http2InitialConnectionWindowSize": INT_VALUE,
        "listenerConnectionLimit": INT_VALUE,
        "globalDownstreamConnectionLimit": INT_VALUE,
    }
)

#: Setting one clears the other, at every level.
CLUSTER_NAME: Final = frozenset(("serviceCluster", "tracingServiceName"))
PROXY_CONFIG: Final = {
    "configPath": STRING,
    "binaryPath": STRING,
    "serviceCluster": Field(STRING.decode),
    "tracingServiceName": Field(
        enum(
            "APP_LABEL_AND_NAMESPACE", "CANONICAL_NAME_ONLY", "CANONICAL_NAME_AND_NAMESPACE"
        ).decode
    ),
    "drainDuration": DURATION,
    "terminationDrainDuration": DURATION,
    "discoveryAddress": STRING,
    "discoveryRefreshDelay": DURATION,
    "zipkinAddress": STRING,
    "statsdUdpAddress": STRING,
    "envoyMetricsServiceAddress": STRING,
    "proxyAdminPort": INT,
    "availabilityZone": STRING,
    "controlPlaneAuthPolicy": enum("NONE", "MUTUAL_TLS", INHERIT=1000),
    "customConfigFile": STRING,
    "statNameLength": INT,
    "concurrency": INT_VALUE,
    "proxyBootstrapTemplatePath": STRING,
    "interceptionMode": enum("REDIRECT", "TPROXY", "NONE"),
    "tracing": TRACING,
    "sds": message({"enabled": BOOL, "k8sSaJwtPath": STRING}),
    "envoyAccessLogService": REMOTE_SERVICE,
    "envoyMetricsService": REMOTE_SERVICE,
    "proxyMetadata": mapping(STRING),
    "runtimeValues": mapping(STRING),
    "statusPort": INT,
    "extraStatTags": repeated(STRING),
    "gatewayTopology": message(
        {
            "numTrustedProxies": UINT,
            "forwardClientCertDetails": FORWARD_CLIENT_CERT,
            "proxyProtocol": EMPTY,
        }
    ),
    "meshId": STRING,
    "readinessProbe": READINESS_PROBE,
    "proxyStatsMatcher": message(
        dict.fromkeys(
            ("inclusionPrefixes", "inclusionSuffixes", "inclusionRegexps"), repeated(STRING)
        )
    ),
    "holdApplicationUntilProxyStarts": BOOL_VALUE,
    "caCertificatesPem": repeated(STRING),
    "image": message({"imageType": STRING}),
    "privateKeyProvider": message(
        {"cryptomb": PRIVATE_KEY_ENGINE, "qat": PRIVATE_KEY_ENGINE}, frozenset(("cryptomb", "qat"))
    ),
    "proxyHeaders": PROXY_HEADERS,
    "fileFlushInterval": DURATION,
    "fileFlushMinSizeKb": UINT,
    "statsCompression": BOOL_VALUE,
    "connectionSettings": CONNECTION_SETTINGS,
    "enableHttp2Connect": BOOL_VALUE,
}
