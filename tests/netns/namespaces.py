"""A throw-away network namespace that tests run commands in."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from pyroute2 import IPRoute, netns

ROOT = Path(__file__).parents[2]
NUMBERS = count()
NSENTER = shutil.which("nsenter") or "nsenter"  # the command's own PATH may lack it


class Namespace:
    """A namespace with `lo` up and the given addresses on it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = f"/var/run/netns/{name}"

    def run(
        self,
        *argv: str,
        check: bool = True,
        text: str = "",
        environ: Mapping[str, str] | None = None,
        wrapper: tuple[str, ...] = (),
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside; `text` is its standard input, `wrapper` comes before it."""
        done = subprocess.run(
            [NSENTER, f"--net={self.path}", *wrapper, *argv],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], **(environ or {})},
        )
        assert not check or done.returncode == 0, (argv, done.stdout, done.stderr)
        return done

    def capture(
        self, *argv: str, status: int = 0, wrapper: tuple[str, ...] = (), **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `istio-iptables` inside, to end with this status; its standard output is the log."""
        words = (sys.executable, "-m", "iptables", *argv)
        done = self.run(*words, check=False, wrapper=wrapper, environ=environ)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def policies(self) -> list[tuple[int, int]]:
        """Return mark and table of each policy rule that has a mark, of both families."""
        with IPRoute(netns=self.name) as kernel:
            found = [rule for family in (2, 10) for rule in kernel.get_rules(family=family)]
        marked = [(rule.get_attr("FRA_FWMARK"), rule.get_attr("FRA_TABLE")) for rule in found]
        return [(mark, table) for mark, table in marked if mark]

    def python(self, code: str) -> str:
        """Run Python code inside; return what it prints."""
        return self.run(sys.executable, "-c", code).stdout


@contextmanager
def namespace(*addresses: str) -> Iterator[Namespace]:
    """Make a namespace with these addresses, such as '10.0.0.1/32', on `lo`; remove it after."""
    inside = Namespace(f"mesh-agent-{os.getpid()}-{next(NUMBERS)}")
    netns.create(inside.name)
    try:
        with IPRoute(netns=inside.name) as kernel:
            kernel.link("set", index=1, state="up")
            for address in addresses:
                host, _, length = address.partition("/")
                kernel.addr("add", index=1, address=host, prefixlen=int(length))
        yield inside
    finally:
        netns.remove(inside.name)
