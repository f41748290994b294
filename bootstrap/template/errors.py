"""What this package raises on purpose: TemplateError, which render.py turns into one line."""


class TemplateError(Exception):
    """A template cannot be read, or not be filled in; fatal, and the user's to change."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"{line}: {reason}")
        self.line = line
        self.reason = reason
