"""Envoy's command line.

Source: bootstrap.md section 6.1, order included.
"""

from typing import NamedTuple


class EnvoySettings(NamedTuple):
    """How Envoy is started."""

    binary: str = "/usr/local/bin/envoy"
    config_file: str = "etc/istio/proxy/envoy-rev.json"
    drain_seconds: int = 45  #: --drain-time-s, whole seconds of drainDuration
    ipv6_only: bool = False  #: every address of the node is IPv6
    file_flush_interval_ms: int = 1000
    file_flush_min_size_kb: int = 0  #: 0: Envoy's own
    log_level: str = "warning"
    component_log_level: str = ""
    skip_deprecated_logs: bool = True
    core_dump: bool = False
    config_yaml: str = ""  #: the override as JSON, merged by Envoy over the file
    concurrency: int = 0  #: 0: Envoy decides
    #: Further environment of Envoy: cipher suites of a compliance policy.
    environment: tuple[tuple[str, str], ...] = ()
    #: uid and gid to run as, None for the agent's own.
    user: tuple[int, int] | None = None


def envoy_arguments(settings: EnvoySettings) -> list[str]:
    """Return Envoy's arguments, without the binary."""
    arguments = [
        *("-c", settings.config_file),
        *("--drain-time-s", str(settings.drain_seconds)),
        *("--drain-strategy", "immediate"),
        *("--local-address-ip-version", "v6" if settings.ipv6_only else "v4"),
        *("--file-flush-interval-msec", str(settings.file_flush_interval_ms)),
        "--disable-hot-restart",
        "--allow-unknown-static-fields",
    ]
    optional = (
        ("--file-flush-min-size-kb", str(settings.file_flush_min_size_kb or "")),
        ("-l", settings.log_level),
        ("--component-log-level", settings.component_log_level),
    )
    for name, value in optional:
        if value:
            arguments += (name, value)
    if settings.skip_deprecated_logs:
        arguments.append("--skip-deprecated-logs")
    if settings.core_dump:
        arguments.append("--enable-core-dump")
    if settings.config_yaml:
        arguments += ("--config-yaml", settings.config_yaml)
    if settings.concurrency > 0:
        arguments += ("--concurrency", str(settings.concurrency))
    return arguments


def split_log_level(proxy_log_level: str, component_log_level: str) -> tuple[str, str, list[str]]:
    """Return Envoy's level, its component levels, and a warning for each item dropped.

    `--proxyLogLevel` may hold `component:level` items; they take the place of
    `--proxyComponentLogLevel`. The last plain level wins.
    """
    level = ""
    components: list[str] = []
    warnings: list[str] = []
    for item in proxy_log_level.split(","):
        colons = item.count(":")
        if colons == 0:
            level = item or level
        elif colons == 1:
            components.append(item)
        else:
            warnings.append(
                f"--proxyLogLevel item {item!r}: expected 'level' or 'component:level'; ignored"
            )
    return level, ",".join(components) or component_log_level, warnings
