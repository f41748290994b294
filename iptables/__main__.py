"""Runs `istio-iptables` alone: python -m iptables."""

import os
import sys

from iptables.cli import main

if __name__ == "__main__":
    status = main(sys.argv[1:], os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # taking the interpreter apart takes 4 ms and frees nothing
