"""What Envoy has accepted, on disk: a database of resources, for one thread.

A transaction holds what came with one burst of pushes, so a process that is killed leaves the
state before it or after it. Rows are numbered by their push: negative while it is not accepted,
positive since. A database that is damaged, of another format or of another node is renamed, and
named in the log; a new one takes its place.
"""

import json
import logging
import os
import sqlite3
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, assert_never

from agent.protobuf.wire import WireError
from agent.xds.cache.entries import entries
from agent.xds.cache.ledger import Accept, Change, Discard, Drop, Forget, Retain, Stage
from agent.xds.discovery import Resource
from agent.xds.snapshot import Snapshot

log = logging.getLogger(__name__)

FILE: Final = "accepted.db"
ASIDE: Final = ".aside"
#: SQLite's own file beside the database, which is part of it.
JOURNAL: Final = "-journal"
DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
FORMAT: Final = 1
#: In place of a version that the control plane gave none: it must not pass for one of its own.
UNVERSIONED: Final = "cached"
SETTINGS: Final = (
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -1024",  # KiB
    "PRAGMA journal_size_limit = 0",
)
SCHEMA: Final = (
    # The volume may be in memory: what is not used is given back.
    "PRAGMA auto_vacuum = FULL",
    "BEGIN",
    "CREATE TABLE about (node TEXT NOT NULL, at REAL NOT NULL)",
    "CREATE TABLE type (id INTEGER PRIMARY KEY, url TEXT NOT NULL UNIQUE, accepted INTEGER)",
    """CREATE TABLE resource (
        type INTEGER NOT NULL, name TEXT NOT NULL, push INTEGER NOT NULL, version TEXT NOT NULL,
        digest INTEGER NOT NULL, body BLOB)""",
    "CREATE UNIQUE INDEX by_name ON resource (type, name, push)",
    "CREATE INDEX by_push ON resource (push)",
    f"PRAGMA user_version = {FORMAT}",
)
TABLES: Final = {line for line in SCHEMA if line.startswith("CREATE")}


class Kept(NamedTuple):
    """What Envoy has accepted."""

    snapshot: Snapshot
    at: float  #: when it last changed, Unix seconds
    resources: int
    size: int  #: of their bodies, in bytes


class UnusableError(Exception):
    """The database is not what it must be; says why."""


#: SQLite quotes what it does not understand; where that is no text, Python says so instead.
UNUSABLE: Final = (UnusableError, UnicodeDecodeError, sqlite3.DatabaseError)
#: SQLite's codes for what is no database, or not ours; a lock or a full disk is another matter.
DAMAGE: Final = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
#: Of a code, what is not its details.
PRIMARY: Final = 0xFF
LOCK_SECONDS: Final = 0.2


class Store:
    """The database of one node."""

    def __init__(self, directory: str, node: str) -> None:
        """Open it, or make it.

        Args:
            directory: made where it is missing, for this user alone.
            node: Envoy's node id, for which alone it is good.

        Raises:
            OSError, sqlite3.Error: it can be neither opened nor made.
        """
        self.path = f"{directory}/{FILE}"
        self._node = node
        self._types: dict[str, int] = {}
        self._staged: set[int] = set()
        self._has_leftovers = True  #: perhaps, of streams that are no more
        os.makedirs(directory, DIRECTORY_MODE, exist_ok=True)  # noqa: PTH103 - as everywhere here
        os.chmod(directory, DIRECTORY_MODE)  # noqa: PTH101 - whatever the umask is
        try:
            self._database = self._open()
        except UNUSABLE as error:
            self._database = self._another(error)

    def apply(self, changes: Sequence[Change], now: float | None) -> None:
        """Make changes, in this order; with a time, all that came before it too is kept for good.

        Args:
            changes: of a stream.
            now: Unix seconds; none if more of the same burst will follow.

        Raises:
            sqlite3.Error: that could not be done; the changes since the last time are lost.
        """
        database = self._database
        if not database.in_transaction:
            database.execute("BEGIN")
        try:
            self._tidy()
            for change in changes:
                self._apply(change)
            if now is not None:
                database.execute("UPDATE about SET at = ?", (now,))
                database.execute("COMMIT")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                database.execute("ROLLBACK")
            raise

    def load(self) -> Kept | None:
        """Return what is kept, none if nothing is; what is damaged is set aside.

        Raises:
            OSError, sqlite3.Error: it cannot be set aside.
        """
        try:
            return self._load()
        except UNUSABLE as error:
            self._database.close()
            self._database = self._another(error)
            return None

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _open(self) -> sqlite3.Connection:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(self.path).st_mode):
                raise UnusableError("expected a regular file")
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(self.path, flags, FILE_MODE))  # what SQLite makes beside it is like it
        database = sqlite3.connect(self.path, timeout=LOCK_SECONDS, isolation_level=None)
        try:
            for line in SETTINGS:
                database.execute(line)
            self._check(database)
        except BaseException:
            database.close()
            raise
        self._types = dict(database.execute("SELECT url, id FROM type"))
        self._staged.clear()
        self._has_leftovers = True
        return database

    def _check(self, database: sqlite3.Connection) -> None:
        """Make sure that the database is ours, after making it where it is new."""
        if database.execute("SELECT 1 FROM sqlite_schema").fetchone() is None:
            for line in SCHEMA:
                database.execute(line)
            database.execute("INSERT INTO about VALUES (?, 0)", (self._node,))
            database.execute("COMMIT")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version != FORMAT:
            raise UnusableError(f"expected format {FORMAT}, found {version}")
        tables = {text for (text,) in database.execute("SELECT sql FROM sqlite_schema") if text}
        if tables != TABLES:
            raise UnusableError("expected other tables")
        # The quick one would not notice a row that is missing from its table.
        (state,) = database.execute("PRAGMA integrity_check(1)").fetchone()
        if state != "ok":
            raise UnusableError(state)
        match database.execute("SELECT node, at FROM about").fetchall():
            case [(self._node, float())]:
                pass
            case about:
                raise UnusableError(f"expected that of node {self._node!r}, found {about!r}")

    def _another(self, problem: Exception) -> sqlite3.Connection:
        """Return a new database in place of an unusable one."""
        if isinstance(problem, sqlite3.Error) and not _is_damage(problem):
            raise problem
        aside = f"{self.path}{ASIDE}"
        with suppress(FileNotFoundError):
            os.replace(f"{self.path}{JOURNAL}", f"{aside}{JOURNAL}")  # noqa: PTH105 - as above
        os.replace(self.path, aside)  # noqa: PTH105 - as above
        log.warning("cached configuration set aside path=%s reason=%r", aside, str(problem))
        return self._open()

    def _apply(self, change: Change) -> None:
        match change:
            case Stage():
                self._stage(change)
            case Accept():
                self._accept(change)
            case Discard(push):
                self._staged.discard(push)
                self._database.execute("DELETE FROM resource WHERE push = ?", (-push,))
            case Retain(type_url, names):
                self._delete(type_url, "name NOT IN (SELECT value FROM json_each(?))", names)
            case Forget(type_url, names):
                self._delete(type_url, "name IN (SELECT value FROM json_each(?))", names)
            case Drop(type_url):
                self._drop(self._type(type_url))
            case _:
                assert_never(change)

    def _tidy(self) -> None:
        """Remove leftovers; not before something is written, as a full disk can still be read."""
        if self._has_leftovers:
            self._database.execute("DELETE FROM resource WHERE push < 0")
            self._has_leftovers = False

    def _stage(self, stage: Stage) -> None:
        push, kind, type_url, raw = stage
        kind_of = self._type(type_url)
        rows = (
            (kind_of, name, -push, version, _digest(type_url, name, version, body), body)
            for name, version, body in entries(kind, type_url, raw)
        )
        try:
            self._database.executemany("INSERT OR REPLACE INTO resource VALUES (?,?,?,?,?,?)", rows)
        except WireError as error:
            log.debug("! not kept type=%s reason=%r", type_url, str(error))
            self._database.execute("DELETE FROM resource WHERE push = ?", (-push,))
            return
        self._staged.add(push)

    def _accept(self, accept: Accept) -> None:
        push, type_url, replaces = accept
        execute = self._database.execute
        kind = self._type(type_url)
        if push not in self._staged:
            # What was accepted and not understood is not known any more.
            self._drop(kind)
            return
        self._staged.discard(push)
        if replaces:
            execute("DELETE FROM resource WHERE type = ? AND push > 0", (kind,))
        else:
            execute(
                "DELETE FROM resource WHERE type = ? AND push > 0"
                " AND name IN (SELECT name FROM resource WHERE push = ?)",
                (kind, -push),
            )
        execute("DELETE FROM resource WHERE push = ? AND body IS NULL", (-push,))
        execute("UPDATE resource SET push = ? WHERE push = ?", (push, -push))
        # Without the rest of it, a part of a type is as good as nothing.
        execute("UPDATE type SET accepted = 1 WHERE id = ? AND (accepted OR ?)", (kind, replaces))

    def _drop(self, kind: int) -> None:
        self._database.execute("DELETE FROM resource WHERE type = ? AND push > 0", (kind,))
        self._database.execute("UPDATE type SET accepted = 0 WHERE id = ?", (kind,))

    def _delete(self, type_url: str, which: str, names: Sequence[str]) -> None:
        self._database.execute(
            f"DELETE FROM resource WHERE type = ? AND push > 0 AND {which}",  # noqa: S608 - ours
            (self._type(type_url), json.dumps(names)),
        )

    def _type(self, type_url: str) -> int:
        found = self._types.get(type_url)
        if found is None:
            found = self._database.execute(
                "INSERT INTO type (url, accepted) VALUES (?, 0) RETURNING id", (type_url,)
            ).fetchone()[0]
            self._types[type_url] = found
        return found

    def _load(self) -> Kept | None:
        (at,) = self._database.execute("SELECT at FROM about").fetchone()
        accepted = self._database.execute("SELECT id, url FROM type WHERE accepted")
        found = {
            type_url: {item.name: item for item in self._resources(kind, type_url)}
            for kind, type_url in accepted.fetchall()
        }
        if not found:
            return None
        bodies = [len(item.body) for by_name in found.values() for item in by_name.values()]
        snapshot = Snapshot(f"{UNVERSIONED}-{at:.0f}", found, is_whole=False)
        return Kept(snapshot, at, len(bodies), sum(bodies))

    def _resources(self, kind: int, type_url: str) -> Iterator[Resource]:
        rows: Any = self._database.execute(
            "SELECT name, version, digest, body FROM resource WHERE type = ? AND push > 0", (kind,)
        )
        for name, version, digest, body in rows:
            if not isinstance(body, bytes) or digest != _digest(type_url, name, version, body):
                raise UnusableError(f"{name!r} of type {type_url} is damaged")
            yield Resource(type_url, name, version or UNVERSIONED, body)


def _is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)  # none where Python finds what is no text
    return code is None or code & PRIMARY in DAMAGE


def _digest(type_url: str, name: str, version: str, body: bytes | None) -> int:
    head = f"{type_url}\0{name}\0{version}".encode()
    return zlib.crc32(body or b"", zlib.crc32(head))
