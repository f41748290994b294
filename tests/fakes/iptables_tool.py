"""A stand-in for one of the iptables tools, linked under their names by `FakeTools`.

It does what the file `behaviour.json` beside it says: a list of answers for each tool, the last
of which is repeated. A save prints; a restore keeps its input as `<tool>.<number>`.
"""

import json
import os
import sys
from pathlib import Path

HERE = Path(sys.argv[0]).parent
NAME = Path(sys.argv[0]).name


def main() -> int:
    """Answer once."""
    calls = HERE / f"{NAME}.calls"
    number = len(calls.read_text().splitlines()) if calls.exists() else 0
    with calls.open("a") as file:
        file.write(" ".join(sys.argv[1:]) + "\n")
    if not NAME.endswith("-save"):
        (HERE / f"{NAME}.{number}").write_text(sys.stdin.read())
    answers = json.loads((HERE / "behaviour.json").read_text()).get(NAME, [{}])
    answer = answers[min(number, len(answers) - 1)]
    sys.stdout.write(answer.get("out", ""))
    sys.stderr.write(answer.get("err", ""))
    status = int(answer.get("status", 0))
    if status < 0:
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(main())
