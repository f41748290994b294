"""Stands for iptables-legacy-restore, by libiptc: libiptc.py FAMILY, with the input on stdin."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from iptables.libiptc.client import restore

if __name__ == "__main__":
    done = restore(6 if sys.argv[1] == "6" else 4, sys.stdin.read())
    sys.exit(done.err or 0)
