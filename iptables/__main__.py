"""Runs `istio-iptables` alone: python -m iptables."""

import os
import sys

from iptables.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
