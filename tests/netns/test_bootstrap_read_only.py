"""A configuration directory on a file system that is read-only."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.root

GATE = """
import sys
from bootstrap.errors import BootstrapError
from bootstrap.files import make_gate, write_atomic
for make in (make_gate, write_atomic):
    try:
        make(sys.argv[1] + "/envoy-rev.json", "{}")
    except BootstrapError as error:
        print(error)
"""


def test_a_read_only_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    mount = f'mount -t tmpfs -o ro none {tmp_path} && exec {sys.executable} -c "$0" {tmp_path}'

    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, GATE],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )

    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all("Read-only file system; mount a writable volume at" in line for line in lines)
    assert done.stderr == ""
