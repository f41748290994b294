"""A headless Chromium, driven over its DevTools: what a person sees, does, and is not told.

Source: chromedevtools.github.io/devtools-protocol.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.waiting import block_until

Json = dict[str, Any]
#: Nothing but the page may cause traffic: no updates, no reports, no names but our own host's.
FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",  # it refuses to have one as root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP evil.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
)
DOMAINS: Final = ("Page", "Runtime", "Log", "Network")
PATIENCE_SECONDS: Final = 20


class DevTools:
    """Commands to the browser and a tab of its, and what they tell, on one connection."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Json]] = {}
        self.tab: Tab | None = None

    async def listen(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told)
            elif self.tab and "sessionId" in told:
                self.tab.hear(told["method"], told["params"])

    async def call(self, method: str, session: str | None = None, **params: object) -> Json:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        command = {"id": number, "method": method, "params": params}
        await self._socket.send_json(command | ({"sessionId": session} if session else {}))
        async with asyncio.timeout(PATIENCE_SECONDS + 5):
            told = await answer
        assert "error" not in told, (method, told["error"])
        result: Json = told["result"]
        return result


class Tab:
    """A page that is shown."""

    def __init__(self, tools: DevTools, session: str) -> None:
        self._tools = tools
        self._session = session
        self._loaded = asyncio.Event()
        self.problems: list[str] = []  #: of the console: errors, and what the policy has stopped
        self.urls: list[str] = []  #: of every request

    def hear(self, method: str, params: Json) -> None:
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Network.requestWillBeSent":
                self.urls.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(params["exceptionDetails"]))
            case "Log.entryAdded" if params["entry"]["level"] != "info":
                self.problems.append(params["entry"]["text"])
            case "Runtime.consoleAPICalled":
                self.problems.append(json.dumps(params["args"]))

    async def call(self, method: str, **params: object) -> Json:
        return await self._tools.call(method, self._session, **params)

    async def start(self) -> None:
        for domain in DOMAINS:
            await self.call(f"{domain}.enable")
        await self.emulate()

    async def go(self, url: str) -> None:
        """Show another page; return when it has loaded."""
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._loaded.wait()

    async def evaluate(self, script: str) -> Any:  # noqa: ANN401 - whatever the script returns
        """Return the value of an expression, awaited if it is a promise."""
        told = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def text(self, selector: str = "body") -> str:
        """Return what is to be read in an element, its blanks made one."""
        found: str = await self.evaluate(
            f"document.querySelector({json.dumps(selector)}).innerText"
        )
        return " ".join(found.split())

    async def until(self, selector: str, words: str) -> str:
        """Return what is to be read in an element once these words are among it."""
        look = f"""new Promise((done) => {{
            const end = Date.now() + {PATIENCE_SECONDS * 1000};
            const look = () => {{
                const found = document.querySelector({json.dumps(selector)})?.innerText ?? "";
                const text = found.replace(/\\s+/g, " ").trim();
                const over = text.includes({json.dumps(words)}) || Date.now() > end;
                if (over) done(text); else setTimeout(look, 20);
            }};
            look();
        }})"""
        found: str = await self.evaluate(look)
        assert words in found, found
        return found

    async def emulate(self, *, width: int = 1280, height: int = 900, **features: str) -> None:
        """Be a window of a size, of a person with preferences such as prefers_color_scheme."""
        named = [{"name": key.replace("_", "-"), "value": features[key]} for key in features]
        await self.call("Emulation.setEmulatedMedia", features=named)
        await self.call("Emulation.setScrollbarsHidden", hidden=True)
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key and let it go."""
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **typed,
            )

    async def screenshot(self) -> bytes:
        """Return a picture of all of the page, PNG."""
        told = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(told["data"])


@contextlib.contextmanager
def running_chromium() -> Iterator[str]:
    """Run a Chromium; yield where its DevTools are."""
    binary = shutil.which("chromium")
    assert binary, "no chromium in PATH; run: apt-get install chromium"
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as name:
        child = subprocess.Popen(
            [binary, *FLAGS, f"--user-data-dir={name}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        try:
            port = Path(name, "DevToolsActivePort")
            block_until(lambda: port.exists() and port.read_text().count("\n"), seconds=30)
            number, path = port.read_text().split()
            yield f"ws://127.0.0.1:{number}{path}"
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


@contextlib.asynccontextmanager
async def new_tab(address: str) -> AsyncIterator[Tab]:
    """Yield an empty tab of a Chromium, without memory of another."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(address, max_msg_size=0) as socket,
        asyncio.TaskGroup() as tasks,
    ):
        tools = DevTools(socket)
        listening = tasks.create_task(tools.listen())
        try:
            context = await tools.call("Target.createBrowserContext", disposeOnDetach=True)
            target = await tools.call("Target.createTarget", url="about:blank", **context)
            attached = await tools.call(
                "Target.attachToTarget", targetId=target["targetId"], flatten=True
            )
            tab = tools.tab = Tab(tools, attached["sessionId"])
            await tab.start()
            yield tab
        finally:
            listening.cancel()
