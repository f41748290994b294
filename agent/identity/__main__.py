"""`python -m agent.identity KIND SIZE STYLE SPIFFE_ID`: a key and its CSR on standard output."""

import gc
import os
import sys

gc.disable()  # nothing of what is imported is ever garbage: a tenth of the child's time

from agent.identity.csr import make_csr  # noqa: E402 - after the above
from agent.identity.keys import read_words  # noqa: E402 - after the above


def run() -> None:
    """Do what the words on the command line say, and leave."""
    os._exit(main(sys.argv[1:]))  # tearing down takes longer than everything before


def main(words: list[str]) -> int:
    """Write key and CSR, or why there is none."""
    try:
        key, request = make_csr(read_words(words))
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    os.write(1, key + request)
    return 0


if __name__ == "__main__":
    run()
