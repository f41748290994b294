"""`agent inject` as a process. Source: status-lifecycle.md section 11.14."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: app, image: i}]
"""
SERVICE = "# kept\napiVersion: v1\nkind: Service\nmetadata: {name:   web}  # and this\n"


def run(*words: str, text: str | bytes = b"", **environ: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "agent", "inject", *words],
        input=text.encode() if isinstance(text, str) else text,
        capture_output=True,
        check=False,
        env={**os.environ, **environ},
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def injected(*words: str, text: str = POD) -> Any:  # noqa: ANN401 - YAML
    done = run("-f", "-", *words, text=text)
    assert (done.returncode, done.stderr) == (0, "")
    return next(yaml.safe_load_all(done.stdout))


def proxy(pod: Any) -> Any:  # noqa: ANN401 - YAML
    spec = pod["spec"]
    everything = spec["containers"] + spec.get("initContainers", [])
    return next(item for item in everything if item["name"] == "istio-proxy")


def test_documents_are_written_each_with_its_separator(tmp_path: Path) -> None:
    manifest = tmp_path / "web.yaml"
    manifest.write_text(f"{SERVICE}---\n{POD}")

    done = run("-f", str(manifest), "--native-sidecars", "true")

    assert done.returncode == 0
    assert done.stderr == ""
    service, pod, rest = done.stdout.split("---\n")
    assert (service, rest) == (SERVICE, "")
    assert proxy(yaml.safe_load(pod))["restartPolicy"] == "Always"


def test_without_a_cluster_the_sidecar_is_a_classic_one() -> None:
    assert "restartPolicy" not in proxy(injected())
    assert "restartPolicy" in proxy(injected("--kubelet-version", "v1.33.2"))


def test_the_result_can_be_injected_again() -> None:
    once = run("-f", "-", text=POD).stdout

    assert run("-f", "-", text=once).stdout == once


def test_the_output_may_be_json() -> None:
    done = run("-f", "-", "-o", "json", text=f"{SERVICE}---\n# nothing\n---\n{POD}")

    decoder = json.JSONDecoder()
    service, end = decoder.raw_decode(done.stdout)
    pod, _ = decoder.raw_decode(done.stdout[end:].lstrip())
    assert service["metadata"] == {"name": "web"}
    assert proxy(pod)["name"] == "istio-proxy"


def test_a_diff_shows_what_changes_and_nothing_else() -> None:
    done = run("-f", "-", "--diff", text=f"{SERVICE}---\n{POD}")

    assert done.stdout.startswith("--- Pod/web (given)\n+++ Pod/web (injected)\n@@")
    changed = [line for line in done.stdout.splitlines() if line.startswith("-")]
    assert changed == [
        "--- Pod/web (given)",
    ]
    assert run("-f", "-", "--diff", text=run("-f", "-", text=POD).stdout).stdout == ""


def test_files_say_how(tmp_path: Path) -> None:
    mesh = tmp_path / "mesh.yaml"
    mesh.write_text("trustDomain: td\ndefaultConfig: {concurrency: 3}\n")
    values = tmp_path / "values.json"
    values.write_text(
        json.dumps({"kind": "ConfigMap", "data": {"values": '{"global": {"network": "n1"}}'}})
    )
    own = tmp_path / "inject.yaml"
    own.write_text("templates:\n  plain: 'metadata: {labels: {plain: \"yes\"}}'\n")
    pod = POD.replace(
        "{name: web}", "{name: web, annotations: {inject.istio.io/templates: 'sidecar,plain'}}"
    )

    found = injected(
        *("--meshConfigFile", str(mesh), "--valuesFile", str(values)),
        *("--injectConfigFile", str(own), "--image", "my.io/agent:1", "-r", "canary", "-n", "prod"),
        text=pod,
    )

    environment = {item["name"]: item.get("value") for item in proxy(found)["env"]}
    assert proxy(found)["image"] == "my.io/agent:1"
    assert environment["TRUST_DOMAIN"] == "td"
    assert environment["PROXY_CONFIG"] == '{"concurrency":3}\n'
    assert environment["ISTIO_META_NETWORK"] == "n1"
    assert environment["CA_ADDR"] == "istiod-canary.istio-system.svc:15012"
    assert "/namespaces/prod/" in environment["ISTIO_META_OWNER"]
    assert found["metadata"]["labels"]["plain"] == "yes"
    assert found["metadata"]["annotations"]["istio.io/rev"] == "canary"


def test_what_is_skipped_is_said() -> None:
    done = run("-f", "-", "-n", "prod", text=POD.replace("spec:\n", "spec:\n  hostNetwork: true\n"))

    assert done.returncode == 0
    assert done.stderr == (
        '===> Skipping injection because Pod "prod/web" has host networking enabled\n'
    )
    assert yaml.safe_load(done.stdout.removesuffix("---\n"))["status"] == {}


def test_every_problem_is_one_line_and_nothing_is_written(tmp_path: Path) -> None:
    manifest = tmp_path / "bad.yaml"
    manifest.write_text(f"{POD}---\n{POD.replace('image: i', 'image: 5')}---\na:\n\tb: 1\n")

    done = run("-f", str(manifest), text="")

    assert (done.returncode, done.stdout) == (255, "")
    first, second = done.stderr.splitlines()
    assert first == (
        f"Error: {manifest}: Pod web: spec.containers[0].image=5: expected text; put it in quotes"
    )
    assert second.startswith(f"Error: {manifest}: line 14, column 1: found character that cannot")
    assert second.endswith("; indent with spaces, not tabs")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "expected -f FILE with manifests, or -f - for standard input"),
        (("-f", "/nowhere"), "cannot read /nowhere: no such file or directory"),
        (("-f", "-", "-o", "xml"), "--output='xml': expected yaml or json"),
        (("-f", "-", "--native-sidecars", "yes"), "--native-sidecars='yes': expected auto, true"),
        (("-f", "-", "--bogus"), "unknown flag --bogus"),
        (("-f", "-", "--valuesFile", "/nowhere"), "cannot read /nowhere"),
    ],
)
def test_usage_errors_are_one_line(words: tuple[str, ...], problem: str) -> None:
    done = run(*words)

    assert done.returncode == 255
    assert done.stderr.startswith(f"Error: {problem}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("flag", "text", "problem"),
    [
        ("--meshConfigFile", "- a", "expected an object, found list"),
        ("--valuesFile", "global: {tag: 1.1}", "global.tag=1.1: expected text"),
        ("--valuesFile", "- a", "expected an object, found list"),
        ("--injectConfigFile", "templates: 5", "templates=5: expected an object"),
        ("--injectConfigFile", "kind: ConfigMap", "data.config: expected the text of the document"),
        ("--meshConfigFile", "a: [", "expected JSON or YAML"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    tmp_path: Path, flag: str, text: str, problem: str
) -> None:
    path = tmp_path / "file"
    path.write_text(text)

    done = run("-f", "-", flag, str(path), text=POD)

    assert done.returncode == 255
    assert all(line.startswith(f"Error: {path}: ") for line in done.stderr.splitlines())
    assert problem in done.stderr


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a: \xff")

    assert run("-f", "-", text=b"\xff").stderr == (
        "Error: standard input: expected UTF-8: byte 0 is none\n"
    )
    assert run("-f", str(path)).stderr == f"Error: {path}: expected UTF-8: byte 3 is none\n"


def test_what_is_written_is_utf_8_whatever_the_terminal_is() -> None:
    text = POD.replace("{name: web}", "{name: web, annotations: {a: €}}")

    done = run("-f", "-", text=text, PYTHONIOENCODING="latin-1")

    assert (done.returncode, done.stderr) == (0, "")
    assert "a: €" in done.stdout


def test_help_names_the_flags() -> None:
    shown = run("--help").stdout

    assert "--native-sidecars" in shown
    assert "--filename" in shown


def test_whoever_reads_may_stop() -> None:
    big = POD.replace("{name: web}", "{name: web, annotations: {a: " + "x" * 200_000 + "}}")
    with subprocess.Popen(
        [sys.executable, "-m", "agent", "inject", "-f", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stdin
        process.stdout.close()
        process.stdin.write(big.encode())
        process.stdin.close()
        assert process.wait(10) == 1
        assert process.stderr
        assert process.stderr.read() == b""


def test_the_documentation_shows_what_is_printed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "injection.md").read_text()
    shown = page.partition("--native-sidecars true --diff\n")[2].partition("```")[0]
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n"
        "  - {name: web, image: i, readinessProbe: {httpGet: {path: /ready, port: 8080}}}\n"
    )

    printed = run("-f", "-", "--native-sidecars", "true", "--diff", text=pod).stdout

    pieces = shown.split("…\n")
    assert len(pieces) == 3
    assert all(piece in printed for piece in pieces)
