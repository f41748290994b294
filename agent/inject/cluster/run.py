"""Follows the cluster's objects for as long as the injector runs."""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from agent.backoff import backoff_seconds
from agent.inject.cluster.client import ApiServer, ClusterError
from agent.inject.cluster.objects import COLLECTIONS, Collection, key_of, version_of

log = logging.getLogger(__name__)

FIRST_DELAY_SECONDS: Final = 1.0
LONGEST_DELAY_SECONDS: Final = 60.0

#: By collection: what is kept of its objects by their keys; a collection that was never had is
#: not there.
Contents = Mapping[str, Mapping[str, Any]]


class Follower:
    """Keeps collections, and tells whoever wants to know when one has changed."""

    def __init__(self, api: ApiServer, changed: Callable[[Contents], None]) -> None:
        """Ask nothing yet.

        Args:
            api: whom to ask.
            changed: is given everything that is known, after each change.
        """
        self._api = api
        self._changed = changed
        self._contents: dict[str, dict[str, Any]] = {}
        self._asked: set[str] = set()
        #: Each collection was asked for once, with or without success.
        self.settled = asyncio.Event()

    async def run(self) -> None:
        """Follow all collections until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for collection in COLLECTIONS:
                tasks.create_task(self._follow(collection))

    async def _follow(self, collection: Collection) -> None:
        attempt = 0
        while True:
            try:
                version = await self._list(collection)
                attempt = 0
                self._settle(collection)
                while version:
                    version = await self._watch(collection, version)
            except ClusterError as error:
                attempt += 1
                self._settle(collection)
                delay = backoff_seconds(
                    attempt,
                    random.random,
                    first=FIRST_DELAY_SECONDS,
                    longest=LONGEST_DELAY_SECONDS,
                )
                level = logging.WARNING if attempt == 1 else logging.DEBUG
                log.log(level, "not followed reason=%r retry_in_seconds=%.1f", str(error), delay)
                await asyncio.sleep(delay)

    def _settle(self, collection: Collection) -> None:
        self._asked.add(collection.name)
        if len(self._asked) == len(COLLECTIONS):
            self.settled.set()

    async def _list(self, collection: Collection) -> str:
        items, version = await self._api.list(collection.path)
        kept = {key_of(item): collection.keep(item) for item in items}
        self._contents[collection.name] = {
            key: value for key, value in kept.items() if value is not None
        }
        self._changed(self._contents)
        return version

    async def _watch(self, collection: Collection, version: str) -> str:
        """Take changes until the watch ends; return from where to go on, '' to list anew."""
        contents = self._contents[collection.name]
        async for event in self._api.watch(collection.path, version):
            if event.kind == "ERROR":
                return ""
            version = version_of(event.item) or version
            if event.kind == "BOOKMARK":
                continue
            kept = None if event.kind == "DELETED" else collection.keep(event.item)
            key = key_of(event.item)
            if contents.get(key) == kept:
                continue
            if kept is None:
                contents.pop(key, None)
            else:
                contents[key] = kept
            self._changed(self._contents)
        return version
