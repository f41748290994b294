"""What a server says of its services: the reflection protocol, on wire format.

Both versions of the protocol, v1 and v1alpha, have the same messages.

Source: xds-identity-dns.md section 2.1; grpc/reflection/v1/reflection.proto of gRPC.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent.protobuf.wire import LENGTH, fields, last_text, message, text

#: Field numbers of a request, of which one is set.
BY_NAME, BY_SYMBOL, SERVICES = 3, 4, 7
#: Of a response.
ORIGINAL, FILES, SERVICES_FOUND, ERROR = 2, 4, 6, 7
NOT_FOUND, UNIMPLEMENTED = 5, 12
#: Of a FileDescriptorProto.
NAME, PACKAGE, DEPENDENCY, MESSAGE, ENUM, SERVICE = 1, 2, 3, 4, 5, 6
#: Of what it describes: methods of a service, what is within a message.
METHOD, INNER_MESSAGE, INNER_ENUM = 2, 3, 4


class _File(NamedTuple):
    raw: bytes
    dependencies: tuple[str, ...]


class Answers:
    """Answers of one server."""

    def __init__(self, services: Sequence[str], descriptors: bytes) -> None:
        """Read what there is to tell.

        Args:
            services: full names of those that are served.
            descriptors: a FileDescriptorSet with the files of the services and all that they need.

        Raises:
            WireError: it cannot be read.
        """
        self._services = services
        self._files: dict[str, _File] = {}
        self._symbols: dict[str, str] = {}  #: to names of files
        for raw in _contents(descriptors, 1):
            name = last_text(raw, NAME)
            dependencies = tuple(each.decode() for each in _contents(raw, DEPENDENCY))
            self._files[name] = _File(raw, dependencies)
            self._symbols |= dict.fromkeys(_symbols(raw), name)

    def answer(self, request: bytes) -> bytes:
        """Return the response to a request; WireError if that cannot be read."""
        for field, wire_type, start, end in fields(request):
            if wire_type != LENGTH:
                continue
            if field == SERVICES:
                found = (message((1, message((1, name)))) for name in self._services)
                return message((ORIGINAL, request), (SERVICES_FOUND, b"".join(found)))
            if field in (BY_NAME, BY_SYMBOL):
                asked = text(request, start, end)
                name = asked if field == BY_NAME else self._symbols.get(asked, "")
                return message((ORIGINAL, request), self._described(name, asked))
        error = message((1, UNIMPLEMENTED), (2, "extensions are not listed"))
        return message((ORIGINAL, request), (ERROR, error))

    def _described(self, name: str, asked: str) -> tuple[int, bytes]:
        """Return a file and all that it needs, as a field of a response."""
        if name not in self._files:
            return ERROR, message((1, NOT_FOUND), (2, f"nothing known of {asked!r}"))
        needed = [name]
        for each in needed:  # which grows meanwhile
            needed += [other for other in self._files[each].dependencies if other not in needed]
        return FILES, message(*((1, self._files[each].raw) for each in needed))


def _symbols(file: bytes) -> Iterator[str]:
    """Yield the full names of what a file describes."""
    package = last_text(file, PACKAGE)
    for raw in _contents(file, MESSAGE):
        yield from _in_message(raw, package)
    yield from _names(file, ENUM, package)
    for raw in _contents(file, SERVICE):
        service = f"{package}.{last_text(raw, NAME)}"
        yield service
        yield from _names(raw, METHOD, service)


def _in_message(raw: bytes, scope: str) -> Iterator[str]:
    name = f"{scope}.{last_text(raw, NAME)}"
    yield name
    yield from _names(raw, INNER_ENUM, name)
    for inner in _contents(raw, INNER_MESSAGE):
        yield from _in_message(inner, name)


def _names(raw: bytes, number: int, scope: str) -> Iterator[str]:
    for each in _contents(raw, number):
        yield f"{scope}.{last_text(each, NAME)}"


def _contents(raw: bytes, number: int) -> Iterator[bytes]:
    for field, wire_type, start, end in fields(raw):
        if field == number and wire_type == LENGTH:
            yield raw[start:end]
