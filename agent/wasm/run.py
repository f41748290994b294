"""Converts ECDS responses: what Envoy would fetch, it finds in files.

Source: xds-identity-dns.md sections 3.1 to 3.4 and 3.9, deviations D-17 and D-26.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from agent.metrics import Family, Metrics
from agent.protobuf.response import Packed, read_packed, read_removed
from agent.wasm import files
from agent.wasm.cache import Cache, Found, Key, Missing, Want, directory_of
from agent.wasm.convert import (
    ExtensionError,
    Failure,
    Plugin,
    Ready,
    Struct,
    local,
    recognise,
    recognise_wasm,
    replacement,
    write_resources,
)
from agent.wasm.order import Converted, Fetched, FetchOrder, Refused, StructOrder
from agent.wasm.process import Fetching, Spawn
from agent.wasm.settings import WasmSettings

log = logging.getLogger(__name__)

STRUCT_SECONDS: Final = 30.0
#: Extensions in JSON's form that are remembered, of which a pod has one or two.
STRUCTS: Final = 64
DURATION: Final = "wasm_config_conversion_duration"
FAMILIES: Final[Mapping[str, Family]] = {
    "wasm_cache_entries": Family("gauge", "The number of Wasm modules on disk."),
    "wasm_cache_lookup_count": Family(
        "counter",
        "The total number of times a Wasm module was looked for, by whether it was there.",
    ),
    "wasm_remote_fetch_count": Family(
        "counter", "The total number of fetches of Wasm modules, by result."
    ),
    "wasm_config_conversion_count": Family(
        "counter", "The total number of extensions received, by what became of them."
    ),
    DURATION: Family(
        "histogram",
        "Milliseconds to convert a response with extensions.",
        tuple(2.0**power for power in range(15)),
    ),
}


class Modules:
    """Modules on disk: found there, or fetched."""

    def __init__(
        self, settings: WasmSettings, metrics: Metrics, fetching: Fetching, spawn: Spawn
    ) -> None:
        """Look at what an earlier run has left.

        Args:
            settings: this branch.
            metrics: told of what happens here.
            fetching: fetches.
            spawn: runs what outlives whoever began it.
        """
        for name, family in FAMILIES.items():
            metrics.describe(name, family)
        self._directory = settings.fetch.directory
        self._expiry_seconds = settings.expiry_seconds
        self._purge_seconds = settings.purge_seconds
        self._metrics = metrics
        self._fetching = fetching
        self._spawn = spawn
        self._clock = asyncio.get_running_loop().time
        self._cache = Cache(settings.expiry_seconds)
        self._holders = 0
        #: Whoever wants the same at once waits for the same.
        self._flights: dict[FetchOrder, asyncio.Task[Key | Failure]] = {}
        self._cache.restore(files.index(self._directory), self._clock())
        self._show_size()
        spawn(self._purge())

    def path(self, key: Key) -> str:
        """Return where Envoy finds a module."""
        return f"{self._directory}/{key.path}"

    def use(self, keys: Mapping[str, Key | None]) -> None:
        """Take note of what Envoy is told, see `Cache.use`: what is in use stays."""
        self._cache.use(keys)
        for key in filter(None, keys.values()):
            self.is_there(key)

    def is_there(self, key: Key) -> bool:
        """Take note that a module is used; return whether it is still on disk."""
        return files.touch(self._directory, key)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Remove nothing meanwhile: what was got is about to be used."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1

    async def get(self, want: Want) -> Key | Failure:
        """Return a module that is on disk."""
        found = self._look_up(want)
        if isinstance(found, Found):
            return found.key
        order = FetchOrder(want.url, found.checksum, want.timeout_seconds, want.secret)
        flight = self._flights.get(order)
        if flight is None:
            flight = self._flights[order] = self._spawn(self._fetch(order, want))
            flight.add_done_callback(lambda _: self._flights.pop(order))
        # What was begun is of use even if the stream that wanted it has ended meanwhile.
        key = await asyncio.shield(flight)
        if isinstance(key, Key):
            self._cache.take(want, key, self._clock())
        return key

    def _look_up(self, want: Want) -> Found | Missing:
        found = self._cache.look_up(want, self._clock())
        if isinstance(found, Found) and not self.is_there(found.key):
            self._cache.drop(found.key)  # somebody else has removed it
            found = self._cache.look_up(want, self._clock())
        self._count_lookup(hit=isinstance(found, Found))
        return found

    async def _fetch(self, order: FetchOrder, want: Want) -> Key | Failure:
        if not order.checksum:
            there = filter(self.is_there, self._cache.known(order.url))
            order = order._replace(known=tuple(key.checksum for key in there))
        outcome = await self._fetching.ask(order, order.timeout_seconds)
        match outcome:
            case Fetched(checksum, is_new):
                key = Key(directory_of(order.url), checksum)
                if not order.checksum:
                    self._count_lookup(hit=self._cache.has(key))
                if is_new:
                    self._metrics.count("wasm_remote_fetch_count", result="success")
                self._cache.take(want, key, self._clock())
                self._show_size()
                return key
            case Refused(reason, result):
                if result:
                    self._metrics.count("wasm_remote_fetch_count", result=result)
                return Failure(reason)
            case _:
                raise AssertionError("a fetch ends in a module, or not")

    def _count_lookup(self, *, hit: bool) -> None:
        self._metrics.count("wasm_cache_lookup_count", hit=str(hit).lower())

    def _show_size(self) -> None:
        self._metrics.set("wasm_cache_entries", len(self._cache))

    async def _purge(self) -> None:
        """Remove what nothing uses any more, for ever."""
        while True:
            await asyncio.sleep(self._purge_seconds)
            for key in self._cache.in_use():
                self.is_there(key)
            if not self._holders:
                self._remove_expired()

    def _remove_expired(self) -> None:
        for key in self._cache.expired(self._clock()):
            if files.remove(self._directory, key, unused_seconds=self._expiry_seconds):
                self._cache.drop(key)
                log.info("removed unused module path=%s", self.path(key))
        self._show_size()


class _Resource(NamedTuple):
    """What Envoy is told in place of a resource."""

    content: bytes  #: the Any
    result: str  #: label of the metric
    name: str
    key: Key | None = None  #: the module it runs


class Conversion:
    """Converts responses; what was fetched for one serves all."""

    def __init__(
        self, modules: Modules, fetching: Fetching, metrics: Metrics, *, keep_last: bool = False
    ) -> None:
        """Begin; `keep_last` rather keeps a module than to replace an extension without."""
        self._modules = modules
        self._fetching = fetching
        self._metrics = metrics
        self._keep_last = keep_last
        #: What Envoy was last told of an extension that has a module, by name.
        self._last: dict[str, _Resource] = {}
        #: Messages of extensions in JSON's form.
        self._structs: dict[StructOrder, bytes] = {}
        #: Set when the conversion that was begun last has ended.
        self._turn = asyncio.Event()
        self._turn.set()

    async def convert(self, raw: bytes, *, delta: bool) -> bytes:
        """Return the response for Envoy; calls return in the order in which they were made.

        Raises:
            ValueError: a resource is no extension; nothing of the response goes to Envoy.
        """
        clock = asyncio.get_running_loop().time
        started = clock()
        packed = list(read_packed(raw, delta=delta))
        removed = read_removed(raw) if delta else []
        before, ended = self._turn, asyncio.Event()
        self._turn = ended
        try:
            with self._modules.holding():
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._convert(each)) for each in packed]
                self._metrics.observe(DURATION, (clock() - started) * 1000)
                await before.wait()
                resources, problems = _part(task.result() for task in tasks)
                if problems:
                    raise ExtensionError("; ".join(problems))
                self._take_note(removed, resources)
            contents = [resource.content for resource in resources]
            return write_resources(raw, packed, contents, delta=delta)
        finally:
            ended.set()

    def _take_note(self, removed: Iterable[str], resources: Iterable[_Resource]) -> None:
        """Remember what Envoy has got."""
        resources = [each for each in resources if each.content]
        used = {resource.name: resource.key for resource in resources}
        self._modules.use({**dict.fromkeys(removed), **used})
        if self._keep_last:
            for name in removed:
                self._last.pop(name, None)
            self._last.update({each.name: each for each in resources if each.key})

    async def _convert(self, packed: Packed) -> _Resource | ExtensionError:
        if packed.is_unchanged():
            return _Resource(b"", "no_remote_load", packed.name)
        try:
            found = recognise(packed.content)
            if isinstance(found, Struct):
                wasm = await self._unpack(found)
                found = recognise_wasm(found.extension, found.filter, wasm)
        except ExtensionError as error:
            self._count("unmarshal_failure")
            return error
        if isinstance(found, Ready):
            resource = _Resource(found.packed, "no_remote_load", packed.name)
        else:
            resource = await self._rewrite(found, packed.name or found.extension.name)
        self._count(resource.result)
        return resource

    async def _rewrite(self, plugin: Plugin, name: str) -> _Resource:
        """Return a plugin with its module, or what takes the place of one without."""
        want = plugin.want
        got = want if isinstance(want, Failure) else await self._modules.get(want)
        if isinstance(got, Key):
            return _Resource(local(plugin, self._modules.path(got)), "success", name, got)
        last = self._last.get(name)
        if last and last.key and self._modules.is_there(last.key):
            log.warning("extension keeps its last module name=%r reason=%r", name, got.reason)
            return last._replace(result=got.result)
        log.warning(
            "extension replaced, as it has no module name=%r allows=%s reason=%r",
            name,
            "all" if plugin.fails_open else "nothing",
            got.reason,
        )
        return _Resource(replacement(plugin), got.result, name)

    async def _unpack(self, struct: Struct) -> bytes:
        """Return the message of an extension in JSON's form."""
        order = StructOrder(struct.filter.type_url, struct.content)
        if order in self._structs:
            return self._structs[order]
        outcome = await self._fetching.ask(order, STRUCT_SECONDS)
        if isinstance(outcome, Converted):
            if len(self._structs) >= STRUCTS:
                self._structs.clear()
            self._structs[order] = outcome.content
            return outcome.content
        reason = outcome.reason if isinstance(outcome, Refused) else "no message"
        raise ExtensionError(f"extension {struct.extension.name!r}: {reason}")

    def _count(self, result: str) -> None:
        self._metrics.count("wasm_config_conversion_count", result=result)


def make_conversion(settings: WasmSettings, metrics: Metrics, spawn: Spawn) -> Conversion:
    """Return what converts responses, with a process to fetch for it."""
    fetching = Fetching(settings.fetch, spawn)
    modules = Modules(settings, metrics, fetching, spawn)
    return Conversion(modules, fetching, metrics, keep_last=settings.keep_last)


def _part(results: Iterable[_Resource | ExtensionError]) -> tuple[list[_Resource], list[str]]:
    resources, problems = [], []
    for result in results:
        if isinstance(result, _Resource):
            resources.append(result)
        else:
            problems.append(str(result))
    return resources, problems
