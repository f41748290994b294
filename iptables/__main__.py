"""Runs `istio-iptables` alone: python -m iptables."""

import os
import sys
from contextlib import suppress

from iptables.cli import main

if __name__ == "__main__":
    status = main(sys.argv[1:], os.environ)
    with suppress(OSError):  # whoever read has gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)  # taking the interpreter apart takes 4 ms and frees nothing
