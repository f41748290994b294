"""A module that Envoy runs: it answers each request with 418 in the application's place.

Written byte by byte, as there is no compiler here. Source: WebAssembly core specification, section
5 (binary format); proxy-wasm ABI 0.2.1.
"""

I32 = b"\x7f"
SEND_LOCAL_RESPONSE = 0  #: number of the imported function
STOP = 1
STATUS = 418


def _number(value: int) -> bytes:
    """Return an unsigned LEB128 number."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def _vector(*items: bytes) -> bytes:
    return _number(len(items)) + b"".join(items)


def _name(text: str) -> bytes:
    return _number(len(text)) + text.encode()


def _section(number: int, content: bytes) -> bytes:
    return bytes((number,)) + _number(len(content)) + content


def _type(parameters: int, results: int) -> bytes:
    return b"\x60" + _vector(*[I32] * parameters) + _vector(*[I32] * results)


def _constant(value: int) -> bytes:
    """Return an instruction that pushes a number; signed LEB128, so two bytes from 64 on."""
    return b"\x41" + (bytes((value,)) if value < 64 else bytes((value & 0x7F | 0x80, value >> 7)))


def _function(*instructions: bytes) -> bytes:
    body = _vector() + b"".join(instructions) + b"\x0b"
    return _number(len(body)) + body


def module() -> bytes:
    """Return the module."""
    types = [(0, 0), (8, 1), (1, 1), (2, 1), (2, 0), (3, 1)]
    answer = (
        _constant(STATUS),
        *[_constant(0)] * 6,
        _constant(0),  # no gRPC status
        b"\x10" + _number(SEND_LOCAL_RESPONSE),
        b"\x1a",  # its result is of no interest
        _constant(STOP),
    )
    functions = {
        "proxy_abi_version_0_2_1": (0, ()),
        "proxy_on_memory_allocate": (2, (_constant(8),)),
        "proxy_on_vm_start": (3, (_constant(1),)),
        "proxy_on_configure": (3, (_constant(1),)),
        "proxy_on_context_create": (4, ()),
        "proxy_on_request_headers": (5, answer),
    }
    imported = _name("env") + _name("proxy_send_local_response") + b"\x00" + _number(1)
    exports = [
        _name(name) + b"\x00" + _number(number) for number, name in enumerate(functions, start=1)
    ]
    return (
        b"\0asm\1\0\0\0"
        + _section(1, _vector(*(_type(*each) for each in types)))
        + _section(2, _vector(imported))
        + _section(3, _vector(*(_number(kind) for kind, _ in functions.values())))
        + _section(5, _vector(b"\x00\x01"))  # a page of memory
        + _section(7, _vector(_name("memory") + b"\x02\x00", *exports))
        + _section(10, _vector(*(_function(*code) for _, code in functions.values())))
    )
