"""A stand-in for nft, to be put in PATH: lists what it is told to, keeps what it is given."""

import os
import shlex
import sys
from pathlib import Path

SCRIPT = """\
import sys
from pathlib import Path

here, refuses, version = Path({here!r}), {refuses!r}, {version!r}
if "--version" in sys.argv:
    print("nftables " + version + " (a name)")
elif "list" in sys.argv:
    sys.stdout.write((here / "listing").read_text())
else:
    text = sys.stdin.read()
    number = len(list(here.glob("input.*")))
    (here / f"input.{{number}}").write_text(text)
    for at, line in enumerate(text.splitlines(), 1):
        if refuses and refuses in line:
            reason = "Could not process rule: Operation not supported"
            sys.exit(f"/dev/stdin:{{at}}:1-9: Error: {{reason}}")
"""


class FakeNft:
    """An nft that refuses every line with certain words in it."""

    def __init__(
        self, directory: Path, *, listing: str = "", refuses: str = "", version: str = "v1.0.6"
    ) -> None:
        self.directory = directory
        (directory / "listing").write_text(listing)
        code = directory / "fake_nft.py"
        code.write_text(SCRIPT.format(here=str(directory), refuses=refuses, version=version))
        script = directory / "nft"
        words = shlex.join([sys.executable, "-IS", os.fspath(code)])
        script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        script.chmod(0o755)

    @property
    def inputs(self) -> list[str]:
        """Return what it was given, refused or not, by call."""
        count = len(list(self.directory.glob("input.*")))
        return [(self.directory / f"input.{number}").read_text() for number in range(count)]
