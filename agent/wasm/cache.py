"""Which modules there are, and what becomes of them.

A module is kept as `<directory>/<hex sha256 of its name>/<checksum>.wasm`. The checksum is that of
the image's manifest, or of the unpacked module where it came over HTTP. What a URL was last seen
to mean is remembered beside that, so that nobody is asked again without need.

Source: xds-identity-dns.md section 3.4, deviation D-17.
"""

import enum
import itertools
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from agent.wasm.reference import SCHEME, module_name, pinned_checksum

try:
    # CPython's own. hashlib loads OpenSSL: 0.7 MB for every pod with a module, and 4 MB of RSS.
    from _sha256 import sha256  # type: ignore[import-not-found]  # has no types
except ImportError:  # pragma: no cover - after 3.11
    from hashlib import sha256

SUFFIX: Final = ".wasm"
#: Ends the name of a file that is not complete.
TEMPORARY: Final = ".tmp"


class PullSecret(NamedTuple):
    """The text of a docker config; printing it, or a value that holds it, shows nothing (R-3)."""

    text: str

    def __repr__(self) -> str:
        return "<pull secret>"


class Policy(enum.Enum):
    """When a registry is asked for an image that is there already."""

    UNSPECIFIED = "UNSPECIFIED_POLICY"
    IF_NOT_PRESENT = "IfNotPresent"
    ALWAYS = "Always"


class Want(NamedTuple):
    """A module that an extension is to run."""

    resource: str  #: name of the extension
    url: str
    checksum: str = ""  #: as configured; '' for any
    timeout_seconds: float = 5.0  #: for all that fetching takes
    version: str = ""  #: of the plugin object
    policy: Policy = Policy.UNSPECIFIED
    secret: PullSecret | None = None  #: none: the default keychain


class Key(NamedTuple):
    """What a module is kept under."""

    directory: str  #: hex sha256 of its name
    checksum: str

    @property
    def path(self) -> str:
        """Return its path below the cache's directory."""
        return f"{self.directory}/{self.checksum}{SUFFIX}"


class Found(NamedTuple):
    """The module is there."""

    key: Key


class Missing(NamedTuple):
    """The module must be fetched; `checksum` is what it must have, '' for any."""

    checksum: str


class _Module(NamedTuple):
    last_used: float
    urls: frozenset[str] = frozenset()


class _Meaning(NamedTuple):
    """What a URL was last seen to mean."""

    checksum: str
    versions: dict[str, str]  #: of the plugin objects that use it, by resource


def directory_of(url: str) -> str:
    """Return the directory of a module's versions."""
    return str(sha256(module_name(url).encode()).hexdigest())


def parse_path(path: str) -> Key | None:
    """Return the key of a file found at this path below the cache's directory, if it has one."""
    directory, _, name = path.partition("/")
    checksum = name.removesuffix(SUFFIX)
    if name == checksum or not (_is_digest(directory) and _is_digest(checksum)):
        return None
    return Key(directory, checksum)


def is_leftover(path: str) -> bool:
    """Return whether a file at this path is a module that was not completed."""
    directory, _, name = path.partition("/")
    return _is_digest(directory) and name.endswith(TEMPORARY)


def _is_digest(text: str) -> bool:
    return len(text) == 64 and not text.strip("0123456789abcdef")  # noqa: PLR2004 - of sha256


class Cache:
    """What is on disk, and in use."""

    def __init__(self, expiry_seconds: float) -> None:
        self._expiry_seconds = expiry_seconds
        self._modules: dict[Key, _Module] = {}
        self._meanings: dict[str, _Meaning] = {}
        #: By resource, as Envoy was told, latest first.
        self._used: dict[str, tuple[Key, ...]] = {}

    def __len__(self) -> int:
        return len(self._modules)

    def restore(self, keys: Iterable[Key], now: float) -> None:
        """Take note of files of an earlier run."""
        self._modules.update((key, _Module(now)) for key in keys)

    def look_up(self, want: Want, now: float) -> Found | Missing:
        """Return the module, or what has to be fetched."""
        checksum = want.checksum or pinned_checksum(want.url)
        meaning = self._meanings.get(want.url)
        if not checksum and meaning:
            is_current = meaning.versions.get(want.resource) == want.version
            if is_current or _ignores_version(want):
                checksum = meaning.checksum
            meaning.versions[want.resource] = want.version
        key = Key(directory_of(want.url), checksum)
        if key not in self._modules:
            return Missing(checksum)
        self.take(want, key, now)
        return Found(key)

    def has(self, key: Key) -> bool:
        """Return whether there is such a module."""
        return key in self._modules

    def known(self, url: str) -> list[Key]:
        """Return the versions of a module that are there."""
        directory = directory_of(url)
        return [key for key in self._modules if key.directory == directory]

    def take(self, want: Want, key: Key, now: float) -> None:
        """Take note that a want was met by a module, perhaps a new one."""
        module = self._modules.get(key, _Module(now))
        self._modules[key] = _Module(now, module.urls | {want.url})
        meaning = self._meanings.get(want.url)
        versions = meaning.versions if meaning else {}
        versions[want.resource] = want.version
        self._meanings[want.url] = _Meaning(key.checksum, versions)

    def use(self, keys: Mapping[str, Key | None]) -> None:
        """Take note of what Envoy is told: modules by resource, none where there is none any more.

        One that a response does not name stays in use: Envoy reads its file again with each
        listener that has it, and no response tells of what Envoy no longer asks for. So does the
        one before: Envoy goes on with it where it refuses the latest.
        """
        for resource, key in keys.items():
            if key:
                before = [each for each in self._used.get(resource, ()) if each != key]
                self._used[resource] = key, *before[:1]
            else:
                self._used.pop(resource, None)

    def in_use(self) -> set[Key]:
        """Return what Envoy may read at any time."""
        return set(itertools.chain.from_iterable(self._used.values()))

    def expired(self, now: float) -> list[Key]:
        """Return the modules that nothing has used for long; those in use are used now."""
        for key in self.in_use():
            if key in self._modules:
                self._modules[key] = self._modules[key]._replace(last_used=now)
        return [
            key
            for key, module in self._modules.items()
            if now - module.last_used > self._expiry_seconds
        ]

    def drop(self, key: Key) -> None:
        """Forget a module whose file is gone, and that URLs meant it."""
        module = self._modules.pop(key)
        for url in module.urls:
            meaning = self._meanings.get(url)
            if meaning and meaning.checksum == key.checksum:
                del self._meanings[url]


def _ignores_version(want: Want) -> bool:
    """Return whether a module that is there is good enough, whatever version asks for it."""
    if want.policy is Policy.UNSPECIFIED:
        return not (want.url.startswith(SCHEME) and want.url.endswith(":latest"))
    return want.policy is Policy.IF_NOT_PRESENT
