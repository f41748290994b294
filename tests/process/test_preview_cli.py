"""`agent bootstrap`, as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

POD = {"POD_NAME": "web-1", "POD_NAMESPACE": "shop", "INSTANCE_IP": "10.0.0.5", "PATH": "/usr/bin"}
ROOT = Path(__file__).parents[2]


def bootstrap(
    directory: Path, *words: str, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agent", "bootstrap", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), **(POD if environ is None else {**POD, **environ})},
    )


def test_what_envoy_would_start_from_is_printed_and_nothing_is_left(tmp_path: Path) -> None:
    done = bootstrap(tmp_path, "router", "--log_as_json")

    document = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert document["node"]["id"] == "router~10.0.0.5~web-1.shop~shop.svc.cluster.local"
    assert "json_format" in document["application_log_config"]["log_format"]
    assert list(tmp_path.iterdir()) == []


def test_warnings_and_the_override_are_told_beside_it(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text('"admin": {"ignore_global_conn_limit": true}')
    environ = {"ISTIO_BOOTSTRAP_OVERRIDE": "own.yaml", "MINIMUM_DRAIN_DURATION": "5"}

    done = bootstrap(tmp_path, environ=environ)

    assert json.loads(done.stdout)
    warning, note = done.stderr.splitlines()
    assert warning.startswith("Warning: MINIMUM_DRAIN_DURATION='5': expected a duration")
    assert note == ('Note: Envoy merges this over it: {"admin":{"ignore_global_conn_limit":true}}')


def test_without_envoy_the_bootstrap_of_grpc_applications_is_printed(tmp_path: Path) -> None:
    done = bootstrap(tmp_path, environ={"DISABLE_ENVOY": "true"})

    assert json.loads(done.stdout)["xds_servers"][0]["server_uri"].endswith("/XDS")


def test_a_template_of_the_users_own_is_filled_in(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "admin: {{ .config.ProxyAdminPort }} {{ .xds_root_cert }} {{ env `HOME` }}\n{{ .typo }}\n"
    )
    environ = {"ISTIO_BOOTSTRAP": "own.yaml", "XDS_ROOT_CA": "own.yaml", "HOME": "/home"}

    done = bootstrap(tmp_path, environ=environ)

    assert done.stdout == "admin: 15000 own.yaml /home\n<no value>\n\n"
    assert done.stderr == "Warning: own.yaml:2: .typo has no value in this pod\n"


def test_a_template_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    environ = {"ISTIO_BOOTSTRAP": "own.json"}
    missing = bootstrap(tmp_path, environ=environ)
    (tmp_path / "own.json").write_text("{\n{{ if .zipkin }}")

    broken = bootstrap(tmp_path, environ=environ)

    assert (missing.returncode, broken.returncode) == (255, 255)
    expected = "expected a readable bootstrap template: No such file or directory"
    assert missing.stderr == f"Error: own.json: {expected}\n"
    assert broken.stderr == "Error: own.json:2: {{ if }} has no {{ end }}\n"


def test_a_configuration_of_the_users_own_is_printed_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("admin: {}\n")
    environ = {"PROXY_CONFIG": '{"customConfigFile": "own.yaml"}'}

    assert bootstrap(tmp_path, environ=environ).stdout == "admin: {}\n\n"
    (tmp_path / "own.yaml").unlink()
    done = bootstrap(tmp_path, environ=environ)
    assert done.stderr == "Error: customConfigFile 'own.yaml': No such file or directory\n"
    assert done.returncode == 255


def test_every_problem_is_a_line(tmp_path: Path) -> None:
    done = bootstrap(tmp_path, environ={"POD_NAME": "", "POD_NAMESPACE": ""})

    assert done.returncode == 255
    assert done.stdout == ""
    assert [line.split(" is")[0] for line in done.stderr.splitlines()] == [
        "Error: POD_NAME",
        "Error: POD_NAMESPACE",
    ]


def test_an_envoy_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = bootstrap(
        tmp_path, "--validate", environ={"PROXY_CONFIG": '{"binaryPath": "/nowhere/envoy"}'}
    )

    assert done.returncode == 255
    assert done.stderr == (
        "Error: cannot have Envoy check this: /nowhere/envoy: No such file or directory; "
        "set binaryPath in PROXY_CONFIG\n"
    )


def test_an_unknown_flag_is_refused(tmp_path: Path) -> None:
    assert bootstrap(tmp_path, "--validat").returncode == 255
