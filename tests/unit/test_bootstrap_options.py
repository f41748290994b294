from bootstrap.options import Options, read_options


def test_an_empty_environment_gives_the_built_in_options() -> None:
    assert read_options({}) == (Options(), [])


def test_every_option_has_its_variable() -> None:
    options, warnings = read_options(
        {
            "ENVOY_STATUS_PORT": "1",
            "ENVOY_PROMETHEUS_PORT": "2",
            "ENVOY_SECURE_METRICS_PORT": "3",
            "ENVOY_SECURE_MERGED_METRICS_PORT": "65535",
            "ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL": "true",
            "EXIT_ON_ZERO_ACTIVE_CONNECTIONS": "1",
            "ENVOY_SKIP_DEPRECATED_LOGS": "F",
            "ISTIO_DELTA_XDS": "false",
            "ISTIO_DUAL_STACK": "t",
            "HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED": "FALSE",
            "PEER_METADATA_DISCOVERY": "True",
            "COMPLIANCE_POLICY": "fips-140-2",
            "HOST_IP": "10.0.0.9",
        }
    )

    assert options == Options(
        status_port=1,
        prometheus_port=2,
        secure_metrics_port=3,
        secure_merged_metrics_port=65535,
        status_proxy_protocol=True,
        exit_on_zero_active_connections=True,
        skip_deprecated_logs=False,
        delta_xds=False,
        dual_stack=True,
        strip_fragment=False,
        peer_metadata_discovery=True,
        compliance_policy="fips-140-2",
        host_ip="10.0.0.9",
    )
    assert not warnings


def test_unusable_values_are_replaced_and_named() -> None:
    options, warnings = read_options(
        {
            "ENVOY_STATUS_PORT": "",
            "ENVOY_PROMETHEUS_PORT": "65536",
            "ENVOY_SECURE_METRICS_PORT": "-1",
            "ENVOY_SECURE_MERGED_METRICS_PORT": "٣",
            "ISTIO_DELTA_XDS": "yes",
            "PEER_METADATA_DISCOVERY": "",
        }
    )

    assert options == Options(peer_metadata_discovery=False)
    assert warnings == [
        "PEER_METADATA_DISCOVERY='': expected 'true' or 'false'; using false",
        "ENVOY_STATUS_PORT='': expected a port in 0..65535; using 15021",
        "ENVOY_PROMETHEUS_PORT='65536': expected a port in 0..65535; using 15090",
        "ENVOY_SECURE_METRICS_PORT='-1': expected a port in 0..65535; using 0",
        "ENVOY_SECURE_MERGED_METRICS_PORT='٣': expected a port in 0..65535; using 0",
        "ISTIO_DELTA_XDS='yes': expected 'true' or 'false'; using true",
    ]
