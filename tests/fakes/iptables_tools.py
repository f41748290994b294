"""A directory of fake iptables tools, to be put in PATH."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

TOOL = Path(__file__).with_name("iptables_tool.py")


class Answer(TypedDict, total=False):
    """How a tool answers once."""

    out: str
    err: str
    status: int  #: negative for the signal that ends it


class FakeTools:
    """Tools that answer as told and remember how they were called."""

    def __init__(self, directory: Path, **answers: Sequence[Answer]) -> None:
        """Make the tools; keywords have '_' for '-', such as iptables_nft_save=[...]."""
        self.directory = directory
        by_name = {name.replace("_", "-"): list(given) for name, given in answers.items()}
        (directory / "behaviour.json").write_text(json.dumps(by_name))
        for name in by_name:
            script = directory / name
            script.write_text(f"#!{sys.executable} -IS\n{TOOL.read_text()}")
            script.chmod(0o755)

    def calls(self, name: str) -> list[str]:
        """Return the arguments of each call of a tool."""
        path = self.directory / f"{name}.calls"
        return path.read_text().splitlines() if path.exists() else []

    def inputs(self, name: str) -> list[str]:
        """Return what a tool was given, by call."""
        numbers = range(len(self.calls(name)))
        return [(self.directory / f"{name}.{number}").read_text() for number in numbers]
