"""Names that nobody resolves."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.netns.namespaces import ROOT
from tests.netns.resolvers import without_answers

pytestmark = pytest.mark.root

#: Many: they must not take the threads of anybody else.
ASK = """
import asyncio, os
from agent.http.client import HttpError, fetch
async def ask():
    try:
        await fetch("GET", "application.example.com", 80, "/", timeout_seconds=0.01)
    except HttpError as error:
        return error.reason
async def main():
    print(*set(await asyncio.gather(*(ask() for _ in range(50)))))
    print(await asyncio.to_thread(str, "others go on"), flush=True)
asyncio.run(main())
os._exit(0)  # as the agent does
"""


def test_nobody_waits_for_a_name_longer_than_he_said(tmp_path: Path) -> None:
    """Neither a check of the application, nor an agent that is to end."""
    done = subprocess.run(
        [*without_answers(tmp_path), sys.executable, "-c", ASK],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=20,
    )

    assert done.stdout.splitlines() == ["timed out after 0.01 s", "others go on"]
