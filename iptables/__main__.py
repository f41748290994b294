"""Runs `istio-iptables` alone: python -m iptables."""

import os
import sys

from iptables.cli import main
from iptables.log import without_output

if __name__ == "__main__":
    try:
        status = main(sys.argv[1:], os.environ)
        sys.stdout.flush()
    except OSError as error:
        status = without_output(error)
    os._exit(status)  # taking the interpreter apart takes 4 ms and frees nothing
