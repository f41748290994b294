"""JSON texts that stand in annotations and environment variables, compared byte by byte.

Source: status-lifecycle.md section 10.2.
"""

import json
from typing import Final

#: What Go's encoder escapes besides.
ESCAPES: Final = {
    ord("<"): "\\u003c",
    ord(">"): "\\u003e",
    ord("&"): "\\u0026",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}
#: A lone surrogate is no character; Go writes this in its place.
REPLACEMENT: Final = "\ufffd"


def compact_json(value: object) -> str:
    """Return JSON without blanks, keys in their order, escaped as Go does."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return whole(text.translate(ESCAPES))


def whole(text: str) -> str:
    """Return the text with lone surrogates, which JSON may name, replaced as Go does."""
    if text.isascii():
        return text
    return "".join(REPLACEMENT if "\ud800" <= sign <= "\udfff" else sign for sign in text)
