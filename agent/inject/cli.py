"""The command `inject`: manifests in, the same with injected pods out.

Source: status-lifecycle.md section 11.14.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from typing import Final, NamedTuple

from agent.cli import fail
from agent.errors import AgentError, SettingsError
from agent.inject.files import Sources, load, read_text
from agent.inject.manifest import Context, Result, inject_document
from agent.inject.pipeline import InjectionError
from agent.inject.yaml_text import Text, dump, parse, split
from iptables.flags import GLOBAL_FLAGS, Flag, Parsed, UsageError, parse_flags, render_help

CONFIGURATION_FLAGS: Final = (
    Flag("meshConfigFile", "string", "", "mesh configuration, or its ConfigMap"),
    Flag("valuesFile", "string", "", "values laid over the chart's own, or their ConfigMap"),
    Flag("injectConfigFile", "string", "", "templates and policy, or their ConfigMap"),
    Flag("revision", "string", "", "revision of the control plane", short="r"),
    Flag("image", "string", "", "image of the agent, in the place of that of the values"),
    Flag(
        "native-sidecars",
        "string",
        "auto",
        "whether the sidecar is a restartable init container: auto, true or false; auto goes by "
        "the kubelets of the cluster, and is false where they are not known",
        env=("ENABLE_NATIVE_SIDECARS",),
    ),
)
FLAGS: Final = (
    Flag(
        "filename",
        "strings",
        (),
        "manifests in YAML or JSON, '-' for standard input; may be repeated",
        short="f",
    ),
    Flag("output", "string", "yaml", "format of the output: yaml or json", short="o"),
    Flag("diff", "bool", default=False, help="show what injection changes, and nothing else"),
    Flag("namespace", "string", "", "namespace of objects that name none", short="n"),
    Flag("kubelet-version", "string", "", "of the cluster's nodes, such as v1.33.0, for auto"),
    *CONFIGURATION_FLAGS,
    *GLOBAL_FLAGS,
)
HELP: Final = (
    "agent inject -f FILE [flags]",
    (
        "Write the manifests with the agent in every pod: workloads of any kind, lists, and "
        "multi-document YAML. What is no workload passes as it is; a pod that was injected before "
        "is injected again, to the same result."
    ),
)


class _Outcome(NamedTuple):
    text: Text
    result: Result


def inject(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Write injected manifests to standard output; return the exit code, 0 or 255."""
    try:
        flags = parse_flags(FLAGS, argv, environ=environ)
        if flags.help:
            sys.stdout.write(render_help(*HELP, FLAGS))
            return 0
        output = _run(flags)
    except (UsageError, AgentError) as error:
        return fail(error)
    sys.stdout.buffer.write(output.encode())  # YAML is UTF-8, whatever the terminal is
    return 0


def sources_of(flags: Parsed) -> Sources:
    """Return where the flags say that the configuration is.

    Raises:
        UsageError: a flag has no usable value.
    """
    if flags.text("native-sidecars") not in ("auto", "true", "false"):
        raise UsageError(
            f"--native-sidecars={flags.text('native-sidecars')!r}: expected auto, true or false"
        )
    return Sources(
        mesh=flags.text("meshConfigFile"),
        values=flags.text("valuesFile"),
        configuration=flags.text("injectConfigFile"),
        revision=flags.text("revision"),
        image=flags.text("image"),
    )


def _run(flags: Parsed) -> str:
    output = flags.text("output")
    if output not in ("yaml", "json"):
        raise UsageError(f"--output={output!r}: expected yaml or json")
    names = (*flags.texts("filename"), *flags.positionals)
    if not names:
        raise UsageError("expected -f FILE with manifests, or -f - for standard input")
    loaded = load(sources_of(flags))
    kubelet = flags.text("kubelet-version")
    context = Context(
        loaded.configuration,
        loaded.settings,
        namespace=flags.text("namespace"),
        native=flags.text("native-sidecars"),
        kubelets={"": kubelet} if kubelet else None,
    )
    outcomes = _inject_all(names, context)
    for warning in (
        *loaded.warnings,
        *(line for item in outcomes for line in item.result.warnings),
    ):
        prefix = "" if warning.startswith("===>") else "Warning: "
        sys.stderr.write(f"{prefix}{warning}\n")
    if flags.is_on("diff"):
        return "".join(map(_difference, outcomes))
    return "".join(map(_as_json if output == "json" else _as_yaml, outcomes))


def _inject_all(names: Sequence[str], context: Context) -> list[_Outcome]:
    """Return what became of every document; nothing is written if one cannot be used."""
    problems: list[str] = []
    outcomes: list[_Outcome] = []
    for name in names:
        for text in split(_read(name)):
            try:
                outcomes.append(_Outcome(text, inject_document(parse(text), context)))
            except InjectionError as error:
                problems += [f"{name}: {problem}" for problem in error.problems]
            except ValueError as error:
                problems.append(f"{name}: {error}")
    if problems:
        raise SettingsError(problems)
    return outcomes


def _read(name: str) -> str:
    if name != "-":
        return read_text(name)
    try:
        with open(0, "rb", closefd=False) as stream:
            return stream.read().decode()
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise SettingsError([f"cannot read standard input: {reason}"]) from error
    except UnicodeDecodeError as error:
        problem = f"standard input: expected UTF-8: byte {error.start} is none"
        raise SettingsError([problem]) from error


def _as_yaml(outcome: _Outcome) -> str:
    after = outcome.result.after
    text = outcome.text.text if after is None else dump(after)
    return f"{text}---\n" if text.endswith("\n") else f"{text}\n---\n"


def _as_json(outcome: _Outcome) -> str:
    after = outcome.result.after
    value = parse(outcome.text) if after is None else after
    return "" if value is None else json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _difference(outcome: _Outcome) -> str:
    """Return a unified diff of an object before and after."""
    before, after, _ = outcome.result
    if before is None or after is None:
        return ""
    metadata = after.get("metadata", {})
    name = f"{after.get('kind')}/{metadata.get('name', '')}"
    lines = unified_diff(
        dump(before).splitlines(keepends=True),
        dump(after).splitlines(keepends=True),
        f"{name} (given)",
        f"{name} (injected)",
    )
    return "".join(lines)
