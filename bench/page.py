"""What the page for people costs: its bytes, each poll of it, and the memory that it leaves.

Method: in a network namespace of its own, `agent proxy sidecar` is started with LDS and CDS from a
control plane with TLS on loopback, which is also its CA. Once it is ready, its memory is read from
smaps_rollup; then the page is loaded as a browser does, with zstd, and its memory is read again.
1,000 polls follow on one connection, with the CPU time of all threads (schedstat) before and after.
"""

import http.client
import re
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from shared.pod import (
    AGENT,
    ARGUMENTS,
    STATUS_PORT,
    VOLUMES,
    compile_sources,
    enter_namespace,
    make_pod,
    server,
    started,
)

POLLS = 1000
SHARED = Path(__file__).with_name("shared")
BROWSER = {"Accept-Encoding": "gzip, deflate, br, zstd"}


def anonymous_kilobytes(pid: int) -> int:
    found = re.search(
        r"^Anonymous:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE
    )
    return int(found[1]) if found else 0


def cpu_milliseconds(pid: int) -> float:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e6


class Client:
    """A browser's connection."""

    def __init__(self) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", STATUS_PORT, timeout=10)

    def get(self, path: str, coding: str = BROWSER["Accept-Encoding"]) -> bytes:
        self._connection.request("GET", path, headers={"Accept-Encoding": coding})
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != http.client.OK:
            raise SystemExit(f"{path}: status {answer.status}")
        return body

    def page(self, coding: str = BROWSER["Accept-Encoding"]) -> int:
        """Load the page as a browser does; return its bytes."""
        index = self.get("/", "identity").decode()
        own = ["page/tree.js", "page/words.js", "page/chart.js", "page/sections.js"]
        files = re.findall(r'(?:src|href)="(page/[^"]+)"', index) + own
        return sum(len(self.get(path, coding)) for path in ("/", *(f"/{name}" for name in files)))


def main() -> None:
    enter_namespace()
    compile_sources()
    with TemporaryDirectory(prefix="bench-page-", dir=VOLUMES) as folder:
        pod = make_pod(Path(folder, "pod"))
        with server(str(SHARED / "control_plane.py"), folder, str(Path(folder, "unused"))):
            shutil.copy(Path(folder, "root-cert.pem"), pod / "var/run/secrets/istio")
            with started([AGENT, *ARGUMENTS], pod) as run:
                time.sleep(1)
                measure(run.process.pid)


def measure(pid: int) -> None:
    client = Client()
    before = anonymous_kilobytes(pid)
    sent = client.page()
    polled = len(client.get("/debug/overview"))
    viewed = anonymous_kilobytes(pid)
    cpu, began = cpu_milliseconds(pid), time.perf_counter()
    for _ in range(POLLS):
        client.get("/debug/overview")
    elapsed = (time.perf_counter() - began) * 1000
    cpu = cpu_milliseconds(pid) - cpu
    left = anonymous_kilobytes(pid)
    plain = client.page("identity"), len(client.get("/debug/overview", "identity"))
    print(f"page: {plain[0]} bytes in 7 files, {sent} as sent with zstd")
    print(f"poll: {plain[1]} bytes, {polled} as sent with zstd")
    print(f"poll: CPU {cpu / POLLS:.2f} ms, {elapsed / POLLS:.2f} ms until the answer, of {POLLS}")
    print(
        f"anonymous memory: {before / 1000:.1f} MB before the first look, "
        f"{viewed - before:+d} kB after it, {left - before:+d} kB after {POLLS} polls"
    )


if __name__ == "__main__":
    main()
