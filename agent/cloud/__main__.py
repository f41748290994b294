"""The child process that finds the cloud: `python -m agent.cloud PLATFORM=HOST...`.

It prints {"metadata", "locality"} as JSON, or nothing where it found none.
"""

import sys

from agent.cloud.client import detect


def main(words: list[str]) -> None:
    """Ask and print."""
    found = detect([(word.partition("=")[0], word.partition("=")[2]) for word in words])
    if found:
        import json  # noqa: PLC0415 - most machines are in no cloud

        sys.stdout.write(json.dumps(found._asdict()))


if __name__ == "__main__":
    main(sys.argv[1:])
