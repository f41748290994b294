"""What goes wrong while fetching.

FetchError        the module cannot be had; the text says why
└── WebError      a request got no answer: its connection failed, or was not allowed
"""

from typing import Final

#: What json raises for a text of somebody else: it is none, or nested without end.
BAD_JSON: Final = (ValueError, RecursionError)


class FetchError(Exception):
    """A module that cannot be had; no text of it holds a secret."""


class WebError(FetchError):
    """A request without answer."""

    def __init__(
        self,
        reason: str,
        *,
        is_temporary: bool = False,
        is_forbidden: bool = False,
        speaks_plain: bool = False,
    ) -> None:
        """Say what is known.

        Args:
            reason: one line.
            is_temporary: the next attempt may well succeed.
            is_forbidden: the next attempt will be refused as this one was.
            speaks_plain: it was asked in TLS and answered without.
        """
        super().__init__(reason)
        self.is_temporary = is_temporary
        self.is_forbidden = is_forbidden
        self.speaks_plain = speaks_plain
