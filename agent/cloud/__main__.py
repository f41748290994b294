"""The child process that finds the cloud: `python -m agent.cloud PLATFORM=HOST...`.

It prints {"metadata", "locality", "labels"} as a line of JSON, or nothing where it found none. With
`compute=HOST` among its words it looks for labels then, and prints the line again with them.
"""

import os
import sys

from agent.cloud.client import add_labels, detect
from agent.cloud.platforms import Found


def main(words: list[str]) -> None:
    """Ask and print."""
    hosts = {word.partition("=")[0]: word.partition("=")[2] for word in words}
    compute = hosts.pop("compute", "")
    found = detect(list(hosts.items()))
    if found:
        _print(found)
        if compute and (labelled := add_labels(found, hosts.get("gcp", ""), compute)).labels:
            _print(labelled)


def _print(found: Found) -> None:
    import json  # noqa: PLC0415 - most machines are in no cloud

    sys.stdout.write(f"{json.dumps(found._asdict())}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # taking the interpreter apart takes 4 ms, and somebody may wait for the end
