"""From exec to an Envoy that loads: everything before asyncio and gRPC are imported.

Envoy is spawned as early as its configuration is known and stops in open(): the file it is told
to read is a FIFO, the gate. While it loads and links, this process imports the rest, opens its
sockets, and only then lets Envoy read on (run.py). So nobody dials before everyone listens, and
the wait costs no time.

Source: performance.md, recommended start sequence.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from agent.errors import AgentError, SystemRefusedError
from agent.files import read_limits
from agent.identity.modes import Mode, choose_mode, needs_certificate
from agent.identity.process import CsrChild
from agent.identity.sockets.client import look
from agent.lifecycle.command_line import EnvoySettings, envoy_arguments
from agent.lifecycle.drain import STATISTICS
from agent.lifecycle.process import Envoy, check_ports, spawn
from agent.scopes import grpc_verbosity
from agent.settings import Settings, World, parse_settings
from agent.version import version_line
from bootstrap import files
from bootstrap.build import BootstrapInputs, build_bootstrap, build_document, companion_files
from bootstrap.errors import BootstrapError
from bootstrap.node import Node, build_node
from iptables.client import interface_addresses
from iptables.errors import CaptureError
from iptables.flags import Parsed

if TYPE_CHECKING:
    from agent.cloud.process import Detection

POD_LABELS = "./etc/istio/pod/labels"
POD_ANNOTATIONS = "./etc/istio/pod/annotations"
RESOLV_CONF = "/etc/resolv.conf"
VERBOSITY = "GRPC_VERBOSITY"
TRACE_VARIABLE = "AGENT_START_TRACE"
#: Fields of ProxyConfig in which users put secrets, or have to.
SECRETIVE = frozenset(("tracing", "proxyMetadata", "readinessProbe"))
ENDINGS = (signal.SIGTERM, signal.SIGINT)


class Start(NamedTuple):
    """What there is once Envoy was started."""

    settings: Settings  #: the whole tree
    node: Node
    #: The process that waits for its configuration; None where Envoy is disabled.
    envoy: Envoy | None
    #: Where it waits; None if it starts from a file of the user's own.
    gate: files.Gate | None
    #: Starts another one.
    launch: Callable[[Callable[[str], None]], Envoy]
    #: Looks for the cloud that the pod runs in.
    detection: "Detection"
    mode: Mode  #: where the workload's certificates come from
    #: Makes the workload's first key while everything else starts.
    first_key: CsrChild | None
    described: list[str]  #: lines that begin the log
    notes: list[str]  #: what was found to be wrong before there was a log
    mark: Callable[[str], None]  #: told of each phase of the start


@contextmanager
def started(flags: Parsed, environ: Mapping[str, str], begun: CsrChild | None) -> Iterator[Start]:
    """Yield what there is once Envoy was started; in the end, or where that fails, all of it goes.

    Args:
        flags: of the command line.
        environ: the environment.
        begun: a child that makes the workload's first key already.

    Raises:
        AgentError, BootstrapError: nothing was left running.
    """
    for number in ENDINGS:
        signal.signal(number, _stop)
    mark = _tracer(environ)
    mark("interpreter")
    with ExitStack() as stack:
        if begun:
            stack.callback(begun.close)
        settings, notes = read_settings(flags, environ)
        settings, mode = identify(settings)
        first_key = _first_key(begun, settings, mode)
        mark("settings")
        node, text = build(settings, notes)
        owner = settings.envoy.user
        for path, content in companion_files(settings.node.proxy_config).items():
            files.write_atomic(path, content, owner=owner)
        mark("bootstrap")
        check_ports(settings.ports, ipv6=settings.has_ipv6)
        gate = files.make_gate(settings.envoy.config_file, text, owner=owner) if text else None
        if gate:
            stack.callback(gate.remove)
        os.environ.update(dict(settings.envoy.environment))  # gRPC reads it, too: once, later
        # What tells us to end waits from here on until somebody can obey it in good order: an
        # exception in the middle of an import, or of gRPC's own code, is a crash.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
        launch = Launch(settings, environ)
        stack.callback(launch.end)
        envoy = launch(notes.append) if settings.envoy_enabled else None
        mark("spawn")
        # From here on Envoy starts, and what is imported costs it no time.
        from agent.cloud.process import Detection  # noqa: PLC0415 - see above

        detection = Detection(settings.cloud, environ)
        stack.callback(detection.finish)
        import_frameworks(grpc_verbosity(settings.log.levels))
        yield Start(
            settings, node, envoy, gate, launch, detection, mode, first_key,
            _described(flags, settings), notes, mark,
        )  # fmt: skip


def identify(settings: Settings) -> tuple[Settings, Mode]:
    """Return where this workload's certificates come from, and settings in which Envoy knows it.

    Raises:
        AgentError: what must be there is not, or what is in the way cannot be removed.
    """
    found = look(settings.identity.socket_file)
    mode = choose_mode(settings.identity, files_only=found.workload, is_file=os.path.isfile)
    node = settings.node._replace(credential_socket=found.credential, files_only_sds=found.workload)
    return settings._replace(node=node), mode


def _first_key(begun: CsrChild | None, settings: Settings, mode: Mode) -> CsrChild | None:
    """Return the child that makes the first key, now told for whom; none if none is needed."""
    if begun is None:
        return None
    if not needs_certificate(mode, settings.identity, os.path.isfile):
        begun.close()
        return None
    begun.tell(settings.identity.key)
    return begun


def import_frameworks(verbosity: str = "NONE") -> None:
    """Import asyncio and gRPC without two modules that they hardly use, for the memory of each pod.

    asyncio does without ssl where Python was built without: that saves 1.4 MB and 4 MB of
    libraries, and the agent has a TLS client of its own (http/tls). gRPC takes of
    typing_extensions a name that typing has, too: 0.4 MB.

    Args:
        verbosity: of gRPC, which reads it on import, unless GRPC_VERBOSITY is set.
    """
    import typing  # noqa: PLC0415 - with those that need it

    with _in_place_of("ssl", None):
        import asyncio  # noqa: PLC0415, F401 - imported for those who need it
    has_own = VERBOSITY in os.environ
    os.environ.setdefault(VERBOSITY, verbosity)
    with _in_place_of("typing_extensions", typing), suppress(ImportError):
        # A gRPC that uses more of it is imported again by whoever needs it.
        import grpc.aio  # noqa: PLC0415, F401 - as above
    if not has_own:
        del os.environ[VERBOSITY]  # which is nothing to Envoy


@contextmanager
def _in_place_of(name: str, module: ModuleType | None) -> Iterator[None]:
    """Have a module that nobody has imported yet be another one for now; None: be missing."""
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]  # None is legal
    if name in modules:
        yield
        return
    modules[name] = module
    try:
        yield
    finally:
        del modules[name]


class Launch:
    """Starts Envoy, and another one where the first has died."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        """Remember how."""
        self._settings = settings
        self._environ = {**environ, **dict(settings.envoy.environment)}
        self._envoy: Envoy | None = None

    def __call__(self, warn: Callable[[str], None]) -> Envoy:
        """Return an Envoy that was just started.

        Raises:
            EnvoyError: it cannot be.
        """
        envoy = envoy_settings(self._settings, warn)
        self._envoy = spawn(envoy.binary, envoy_arguments(envoy), self._environ, user=envoy.user)
        return self._envoy

    def end(self) -> None:
        """Leave no Envoy behind where the start failed; one that was supervised is gone."""
        if self._envoy and self._envoy.pidfd >= 0:
            self._envoy.send(signal.SIGKILL)
            self._envoy.reap()


def envoy_settings(settings: Settings, warn: Callable[[str], None]) -> EnvoySettings:
    """Return how Envoy is started now: the override is read each time. bootstrap.md 5.10."""
    path = settings.override_path
    if not path:
        return settings.envoy
    from bootstrap.override import override_json  # noqa: PLC0415 - few pods have one

    try:
        merged = override_json(files.read_text(path), settings.options.host_ip)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        warn(f"ISTIO_BOOTSTRAP_OVERRIDE={path!r}: {reason}; Envoy starts without it")
        return settings.envoy
    return settings.envoy._replace(config_yaml=merged)


def _stop(number: int, frame: object) -> NoReturn:
    """Leave with exit code 0 when told to stop before anything is served (lifecycle/run.py).

    The default would not even do so as pid 1 of a container: the kernel drops the signal.
    """
    del number, frame
    raise SystemExit(0)


def read_settings(flags: Parsed, environ: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """Return the settings of this pod, and warnings.

    Raises:
        AgentError, BootstrapError: they are unusable, or the pod does not say what it is.
    """
    world, notes = _world(flags, environ)
    settings, warnings = parse_settings(flags, environ, world)
    notes += warnings
    if settings.node.proxy_config.statsd_udp_address:
        from bootstrap.client import resolve_statsd  # noqa: PLC0415 - threads, for few pods

        config, warnings = resolve_statsd(settings.node.proxy_config)
        settings = settings._replace(node=settings.node._replace(proxy_config=config))
        notes += warnings
    return settings, notes


def _world(flags: Parsed, environ: Mapping[str, str]) -> tuple[World, list[str]]:
    labels, notes = files.read_pod_file(POD_LABELS)
    annotations, more = files.read_pod_file(POD_ANNOTATIONS)
    try:
        found = interface_addresses()
    except CaptureError as error:
        raise SystemRefusedError(str(error)) from error
    world = World(
        mesh_config=files.read_mesh_config(flags.text("meshConfig")),
        labels=labels,
        annotations=annotations,
        interface_addresses=[
            (entry.interface, entry.address)
            for entry in found
            if entry.is_up and not entry.is_loopback
        ],
        cpus=os.cpu_count() or 0,
        limits=read_limits(),
        is_root=os.geteuid() == 0,
        resolv_conf=files.read_pod_file(RESOLV_CONF)[0] or ""
        if environ.get("GCP_METADATA")
        else "",
    )
    return world, notes + more


def build(settings: Settings, notes: list[str]) -> tuple[Node, str]:
    """Return Envoy's node and bootstrap, the latter '' where Envoy needs none of ours.

    Args:
        settings: the whole tree.
        notes: gains a line for what is left out.

    Raises:
        BootstrapError: Envoy cannot be configured as asked.
    """
    node, warnings = build_node(settings.node)
    notes += warnings
    if settings.custom_config or not settings.envoy_enabled:
        return node, ""
    inputs = BootstrapInputs(
        config=settings.node.proxy_config,
        node=node,
        options=settings.options,
        log_as_json=settings.log.as_json,
        outlier_log_path=settings.node.outlier_log_path,
        workload_socket_file=settings.node.workload_socket_file,
        counted_statistics=STATISTICS[settings.plan.condition],
        memory_limit_bytes=settings.memory_limit_bytes,
    )
    text, warnings = build_bootstrap(inputs)
    notes += warnings
    if settings.template:
        text, warnings = _fill_template(settings, inputs)
        notes += warnings
    return node, text


def _fill_template(settings: Settings, inputs: BootstrapInputs) -> tuple[str, list[str]]:
    """Return the bootstrap that the user's own template yields, and warnings."""
    from agent.xds.credentials import choose_root  # noqa: PLC0415 - few pods have a template
    from bootstrap.template.parameters import parameters  # noqa: PLC0415 - as above
    from bootstrap.template.render import render  # noqa: PLC0415 - as above

    path = settings.template
    try:
        text = files.read_text(path)
    except OSError as error:
        expected = "expected a readable bootstrap template"
        raise BootstrapError([f"{path}: {expected}: {error.strerror}"]) from error
    try:
        root = choose_root(settings.xds.upstream.credentials, os.path.isfile).path
    except AgentError:  # whoever dials the control plane says so
        root = ""
    given = parameters(inputs, build_document(inputs)[0], xds_root_cert=root)
    return render(text, given, settings.node.environ, path=path)


def _described(flags: Parsed, settings: Settings) -> list[str]:
    """Return the first lines of the log. Source: bootstrap.md section 1.4."""
    lines = [f'FLAG: --{name}="{_shown(value)}"' for name, value in sorted(flags.values.items())]
    document = settings.node.proxy_config.document
    if not SECRETIVE.isdisjoint(document):
        from agent.masking import describe  # noqa: PLC0415 - few pods configure these

        document = describe(document)
    effective = json.dumps(document, sort_keys=True)  # which is YAML, too
    return [*lines, f"Version {version_line()}", f"Effective config {effective}"]


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _tracer(environ: Mapping[str, str]) -> Callable[[str], None]:
    """Return what is told of each phase of the start; it prints only when asked to."""
    if not environ.get(TRACE_VARIABLE):
        return lambda _: None
    began = _process_start()

    def mark(phase: str) -> None:
        now = time.monotonic()
        sys.stderr.write(f"phase={phase} ms={(now - began) * 1000:.1f} at={now:.6f}\n")

    return mark


def _process_start() -> float:
    """Return when this process was executed, on the monotonic clock, to 10 ms."""
    with open("/proc/self/stat") as file:  # noqa: PTH123 - pathlib costs 5 ms before the spawn
        fields = file.read().rpartition(")")[2].split()
    ticks = int(fields[19])
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic() - (since_boot - ticks / os.sysconf("SC_CLK_TCK"))
