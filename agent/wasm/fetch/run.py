"""Carries out the agent's orders: fetches modules and stores them.

Source: xds-identity-dns.md sections 3.4 to 3.6.
"""

import asyncio
import traceback
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from typing import IO, Final

from agent.wasm.cache import Key, PullSecret, directory_of
from agent.wasm.fetch import files
from agent.wasm.fetch.client import SCHEMES, Surroundings, Web, download
from agent.wasm.fetch.errors import FetchError
from agent.wasm.fetch.registry.auth import (
    Credentials,
    find_credentials,
    find_helper,
    helper_server,
    read_helper,
)
from agent.wasm.fetch.registry.client import Registry
from agent.wasm.fetch.registry.image import Manifest, bad_format, choose_layers
from agent.wasm.fetch.registry.process import ask_helper
from agent.wasm.fetch.unpack import (
    Make,
    TooLargeError,
    digest,
    find_module,
    is_module,
    unpack,
)
from agent.wasm.order import (
    Converted,
    Fetched,
    FetchOrder,
    Order,
    Outcome,
    Refused,
    StructOrder,
    read_order,
    write_outcome,
)
from agent.wasm.reference import Reference, parse_reference, shown_url
from agent.wasm.settings import FetchSettings

DOWNLOAD: Final = "download_failure"
MANIFEST: Final = "manifest_failure"
CHECKSUM: Final = "checksum_mismatched"
FETCH: Final = "fetch_failure"
#: Of what is logged, in characters.
MAX_REASON: Final = 1000
#: They are made as they are needed; an order has one or two at a time.
THREADS: Final = 256


class Fetcher:
    """Carries out one order after the other, or many at once."""

    def __init__(self, settings: FetchSettings, web: Web, surroundings: Surroundings) -> None:
        self._settings = settings
        self._web = web
        self._surroundings = surroundings

    async def carry_out(self, order: Order) -> Outcome:
        """Return what became of an order."""
        if isinstance(order, StructOrder):
            from agent.wasm.fetch.structs import convert_struct  # noqa: PLC0415 - 20 MB, rarely

            try:
                return Converted(convert_struct(order.type_url, order.content))
            except FetchError as error:
                return Refused(str(error))
        directory = self._settings.directory
        try:
            with ExitStack() as stack:  # a file on a full disk cannot be closed either

                def make() -> IO[bytes]:
                    return stack.enter_context(files.scratch(directory))

                return await self._fetch(order, make)
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            return Refused(f"{directory}: {reason}; it must exist and be writable", FETCH)

    async def _fetch(self, order: FetchOrder, make: Make) -> Outcome:
        deadline = asyncio.get_running_loop().time() + order.timeout_seconds
        scheme = order.url.partition(":")[0]
        if scheme in SCHEMES:
            return await self._fetch_file(order, make, deadline)
        if scheme == "oci":
            return await self._fetch_image(order, make, deadline)
        return Refused(f"unsupported Wasm module downloading URL scheme: {scheme}")

    async def _fetch_file(self, order: FetchOrder, make: Make, deadline: float) -> Outcome:
        """Fetch over HTTP; the checksum is that of the module."""
        limit_bytes = self._settings.max_bytes
        try:
            body = await download(
                self._web,
                order.url,
                make(),
                settings=self._settings,
                surroundings=self._surroundings,
                deadline=deadline,
            )
            module = await asyncio.to_thread(unpack, body, make, limit_bytes)
        except (FetchError, TooLargeError) as error:
            return Refused(str(error), DOWNLOAD)
        checksum = await asyncio.to_thread(digest, module)
        return _mismatch(order, checksum) or await self._store(order, module, checksum)

    async def _fetch_image(self, order: FetchOrder, make: Make, deadline: float) -> Outcome:
        """Fetch from a registry; the checksum is that of the manifest."""
        try:
            async with _until(deadline):
                registry, manifest, checksum = await self._manifest(order)
        except FetchError as error:
            return Refused(f"could not fetch Wasm OCI image: {error}", MANIFEST)
        if not order.checksum and checksum in order.known:
            return Fetched(checksum, is_new=False)
        if mismatch := _mismatch(order, checksum):
            return mismatch
        try:
            async with _until(deadline):
                module = await self._layer(registry, manifest, make)
        except FetchError as error:
            return Refused(f"could not fetch Wasm binary: {error}", DOWNLOAD)
        return await self._store(order, module, checksum)

    async def _manifest(self, order: FetchOrder) -> tuple[Registry, Manifest, str]:
        try:
            reference = parse_reference(order.url)
        except ValueError as error:
            raise FetchError(str(error)) from None
        credentials = await self._credentials(order.secret, reference)
        registry = Registry(self._web, reference, credentials, self._surroundings)
        await registry.connect()
        manifest, checksum = await registry.manifest()
        return registry, manifest, checksum

    async def _credentials(
        self, secret: PullSecret | None, reference: Reference
    ) -> Credentials | None:
        """Return who pulls: by the secret, and without one as Docker would."""
        source = "pull secret" if secret else "docker config"
        try:
            if secret:
                return find_credentials(secret.text, [reference.registry])
            text = files.read_docker_config(self._surroundings.environ) or "{}"
            return await self._helped(text, reference.registry) or find_credentials(
                text, [reference.name, reference.registry]
            )
        except (FetchError, ValueError) as error:
            raise FetchError(f"{source}: {error}") from None

    async def _helped(self, text: str, registry: str) -> Credentials | None:
        """Return what a program knows that Docker's configuration names."""
        name = find_helper(text, registry)
        if name is None:
            return None
        environ = self._surroundings.environ
        return read_helper(await ask_helper(name, helper_server(registry), environ))

    async def _layer(self, registry: Registry, manifest: Manifest, make: Make) -> IO[bytes]:
        """Return the module of an image: out of an archive, or a layer of its own."""
        limit_bytes = self._settings.max_bytes
        try:
            archive, module, problems = choose_layers(manifest)
            if archive:
                file = await registry.blob(archive, make(), limit_bytes)
                try:
                    return await asyncio.to_thread(find_module, file, make, limit_bytes)
                except ValueError as error:
                    problems = (str(error), *problems)
            if module:
                return await registry.blob(module, make(), limit_bytes)
        except ValueError as error:
            raise FetchError(str(error)) from None
        raise FetchError(bad_format(problems))

    async def _store(self, order: FetchOrder, module: IO[bytes], checksum: str) -> Outcome:
        if not is_module(module):
            return Refused(f"fetched Wasm binary from {shown_url(order.url)} is invalid", FETCH)
        key = Key(directory_of(order.url), checksum)
        await asyncio.to_thread(files.store, module, f"{self._settings.directory}/{key.path}")
        return Fetched(checksum)


def _mismatch(order: FetchOrder, checksum: str) -> Refused | None:
    if order.checksum in ("", checksum):
        return None
    where = shown_url(order.url)
    reason = f"has checksum {checksum}, which does not match: {order.checksum}"
    return Refused(f"module downloaded from {where} {reason}", CHECKSUM)


@asynccontextmanager
async def _until(deadline: float) -> AsyncIterator[None]:
    """Have what is done here done in time."""
    late = FetchError("timed out")
    if asyncio.get_running_loop().time() >= deadline:
        raise late
    try:
        async with asyncio.timeout_at(deadline):
            yield
    except TimeoutError:
        raise late from None


async def serve(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    settings: FetchSettings,
    surroundings: Surroundings,
) -> None:
    """Carry out the orders that arrive, all at once, until there are no more to come."""
    # A name that cannot be resolved holds a thread for long, and must not hold up other orders.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    async with Web(settings, surroundings) as web, asyncio.TaskGroup() as tasks:
        fetcher = Fetcher(settings, web, surroundings)
        running: set[asyncio.Task[None]] = set()
        while line := await reader.readline():
            task = tasks.create_task(_answer(fetcher, line, writer))
            running.add(task)
            task.add_done_callback(running.discard)
        for task in running:  # nobody is there any more
            task.cancel()


async def _answer(fetcher: Fetcher, line: bytes, writer: asyncio.StreamWriter) -> None:
    number, order = read_order(line)
    try:
        outcome = await fetcher.carry_out(order)
    except Exception as error:  # noqa: BLE001 - a defect of ours; its text may hold a secret
        traceback.print_tb(error.__traceback__)
        outcome = Refused(f"internal error: {type(error).__name__}", FETCH)
    if isinstance(outcome, Refused):  # whoever is asked may say much
        outcome = outcome._replace(reason=outcome.reason[:MAX_REASON])
    writer.write(write_outcome(number, outcome))
