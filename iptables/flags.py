"""Command-line flags from a table: parsing and help text, with the reference's rules.

One table of `Flag` values says everything about a command's flags. argparse would cost more than
the rest of a small command's start (performance.md, "Small tools"), and its rules differ: it
abbreviates names, and refuses values that begin with a dash.

Nothing is imported here that `agent wait` with a flag would have to wait for: `typing` and `re`
would double its time.

Source: bootstrap.md sections 1.1 and 1.3; traffic-capture.md section 2.2.
"""

from __future__ import annotations

TYPE_CHECKING = False  # stands for that of `typing`, see above
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Final, Literal, TypeVar

    Kind = Literal["string", "bool", "int", "uint16", "duration", "strings"]
    T = TypeVar("T")
Value = str | bool | int | float | tuple[str, ...]

TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
FALSE: Final = ("0", "f", "F", "FALSE", "false", "False")
OCTAL: Final = frozenset("01234567_")
#: Letters for 0x, 0o and 0b; which of them may stand where, int() knows.
NUMERIC: Final = frozenset("0123456789abcdefoxABCDEFOX_")
HELP_COLUMNS: Final = 80  # fits every terminal; wider ones do not make text easier to read
INDENT: Final = 8 * " "
MAX_INT: Final = 2**63 - 1
MAX_UINT16: Final = 65535
DURATION: Final = r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+"
DURATION_PART: Final = r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)"
UNIT_SECONDS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
NO_ENVIRONMENT: Final[Mapping[str, str]] = {}


class UsageError(Exception):
    """The command line cannot be understood; one line for the user. Exit code 255."""


class Flag:
    """One flag of a command."""

    __slots__ = ("default", "env", "help", "kind", "name", "short")

    def __init__(  # noqa: PLR0917 - the rows of tables
        self,
        name: str,
        kind: Kind,
        default: Value,
        help: str,  # noqa: A002 - what it is
        short: str = "",
        env: tuple[str, ...] = (),
    ) -> None:
        self.name = name  #: without the dashes
        self.kind = kind
        self.default = default  #: str, bool, int, seconds as float, or a tuple for "strings"
        self.help = help  #: one sentence, lower case, no full stop
        self.short = short  #: one letter, without the dash
        self.env = env  #: variables that pre-set it; a later one wins


class Parsed:
    """A command line, read."""

    __slots__ = ("given", "help", "positionals", "values", "warnings")

    def __init__(
        self,
        values: Mapping[str, Value],
        given: frozenset[str],
        positionals: tuple[str, ...],
        *,
        help: bool,  # noqa: A002 - what it is
        warnings: tuple[str, ...],
    ) -> None:
        self.values = values  #: of every flag of the table, by name
        self.given = given  #: names that stood on the command line
        self.positionals = positionals
        self.help = help  #: -h or --help was asked for
        self.warnings = warnings  #: variables whose text is unusable, one line each

    def _replace(self, *, positionals: tuple[str, ...]) -> Parsed:
        """Return the same with other positionals, as a NamedTuple would."""
        return Parsed(self.values, self.given, positionals, help=self.help, warnings=self.warnings)

    def text(self, name: str) -> str:
        """Return the value of a "string" flag."""
        return self._typed(name, str)

    def is_on(self, name: str) -> bool:
        """Return the value of a "bool" flag."""
        return self._typed(name, bool)

    def number(self, name: str) -> int:
        """Return the value of an "int" or "uint16" flag."""
        return self._typed(name, int)

    def seconds(self, name: str) -> float:
        """Return the value of a "duration" flag."""
        return self._typed(name, float)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the value of a "strings" flag."""
        return self._typed(name, tuple)

    def _typed(self, name: str, kind: type[T]) -> T:
        value = self.values[name]
        if not isinstance(value, kind):
            raise TypeError(f"--{name} is no {kind.__name__}")
        return value


HELP: Final = Flag("help", "bool", default=False, help="print this text", short="h")

#: Valid on every command. Source: bootstrap.md section 1.3.
GLOBAL_FLAGS: Final = (
    Flag(
        "log_output_level",
        "string",
        "",
        "comma list of scope:level; a bare level is for the scope 'default', scope 'all' for each; "
        "levels are debug, info, warn, error, fatal, none",
    ),
    Flag("log_as_json", "bool", default=False, help="write log lines as JSON"),
    Flag(
        "log_target",
        "strings",
        ("stdout",),
        "where log lines go: a file, stdout or stderr; may be repeated",
    ),
    Flag(
        "log_stacktrace_level",
        "string",
        "default:none",
        "comma list of scope:level from which stacks are attached",
    ),
    Flag("log_caller", "string", "", "comma list of scopes that add the source location, or 'all'"),
    Flag("vklog", "int", 0, "verbosity of the Kubernetes client's log; accepted, without effect"),
)


def parse_bool(text: str) -> bool:
    """Return a Go boolean; ValueError says what is accepted."""
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise ValueError("expected 'true' or 'false'")


def parse_int(text: str) -> int:
    """Return a 64-bit integer: decimal, 0x, 0b, or octal with 0o or a leading 0."""
    digits = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if len(digits) > 1 and digits[0] == "0" and OCTAL.issuperset(digits):
        digits = f"0o{digits[1:]}"
    if not digits[:1].isdigit() or not NUMERIC.issuperset(digits):
        raise ValueError("expected a whole number")
    try:
        number = int(digits, 0)
    except ValueError:
        raise ValueError("expected a whole number") from None
    if number > MAX_INT:
        raise ValueError("expected a number of at most 64 bits")
    return -number if text.startswith("-") else number


def parse_uint16(text: str) -> int:
    """Return a number in 0..65535, without a sign; the notations of parse_int."""
    number = -1 if text.startswith(("+", "-")) else parse_int(text)
    if not 0 <= number <= MAX_UINT16:
        raise ValueError("expected a number in 0..65535")
    return number


def parse_duration(text: str) -> float:
    """Return the seconds of a Go duration such as '5s', '1m30s' or '300ms'; '0' is allowed."""
    import re  # noqa: PLC0415 - 2 ms that few commands have a duration to spend on

    if text in ("0", "+0", "-0"):
        return 0.0
    if not re.fullmatch(DURATION, text, re.ASCII):
        raise ValueError("expected a duration such as '5s' or '300ms'")
    parts = re.findall(DURATION_PART, text, re.ASCII)
    seconds = sum(float(number) * UNIT_SECONDS[unit] for number, unit in parts)
    return -seconds if text.startswith("-") else seconds


PARSERS: Final[Mapping[Kind, Callable[[str], Value]]] = {
    "string": str,
    "bool": parse_bool,
    "int": parse_int,
    "uint16": parse_uint16,
    "duration": parse_duration,
    "strings": lambda text: (text,),
}


def parse_flags(
    flags: Sequence[Flag],
    argv: Sequence[str],
    *,
    unknown_ok: bool = False,
    environ: Mapping[str, str] = NO_ENVIRONMENT,
) -> Parsed:
    """Return the values of all flags: default, then environment, then command line.

    Args:
        flags: the command's table; -h and --help are understood besides.
        argv: the words after the command's name.
        unknown_ok: skip unknown flags; one without '=' takes the next word with it, unless that
            begins with a dash.
        environ: where each flag's `env` is looked up.

    Raises:
        UsageError: a flag is unknown, has no value, or one that does not parse.

    Source: bootstrap.md section 1.1; traffic-capture.md section 2.2.
    """
    values, warnings = _from_environment(flags, environ)
    line = _CommandLine(flags, argv, unknown_ok=unknown_ok)
    line.read()
    wants_help = bool(line.values.pop(HELP.name, False))
    return Parsed(
        values={**values, **line.values},
        given=frozenset(line.values),
        positionals=tuple(line.positionals),
        help=wants_help,
        warnings=tuple(warnings),
    )


def _from_environment(
    flags: Iterable[Flag], environ: Mapping[str, str]
) -> tuple[dict[str, Value], list[str]]:
    """Return every flag's value before the command line is read, and what was unusable.

    An unusable text turns a bool off, as in the reference; other kinds keep their default instead
    of the reference's zero, which makes `PROBE_TIMEOUT=5` time out at once.

    Source: traffic-capture.md sections 2.2 rule 2 and 17.15.
    """
    values: dict[str, Value] = {}
    warnings: list[str] = []
    for flag in flags:
        values[flag.name] = flag.default
        for name in flag.env:
            if name not in environ:
                continue
            try:
                values[flag.name] = PARSERS[flag.kind](environ[name])
            except ValueError as error:
                values[flag.name] = False if flag.kind == "bool" else flag.default
                used = _shown(flag, values[flag.name])
                warnings.append(f"{name}={environ[name]!r}: {error}; using {used}")
    return values, warnings


class _CommandLine:
    """Reads words from left to right; `words` holds what is left, the next one last."""

    def __init__(self, flags: Sequence[Flag], argv: Sequence[str], *, unknown_ok: bool) -> None:
        known = (*flags, HELP)
        self.by_name = {flag.name: flag for flag in known}
        self.by_letter = {flag.short: flag for flag in known if flag.short}
        self.words = list(reversed(argv))
        self.unknown_ok = unknown_ok
        self.values: dict[str, Value] = {}
        self.positionals: list[str] = []

    def read(self) -> None:
        while self.words:
            word = self.words.pop()
            if word == "--":
                self.positionals.extend(reversed(self.words))
                return
            if word.startswith("--"):
                self._read_long(word)
            elif word.startswith("-") and word != "-":
                self._read_letters(word[1:])
            else:
                self.positionals.append(word)

    def _read_long(self, word: str) -> None:
        name, has_value, text = word[2:].partition("=")
        flag = self.by_name.get(name)
        if flag is None:
            self._skip_unknown(f"--{name}", with_value=bool(has_value))
        elif has_value:
            self._set(flag, text)
        elif flag.kind == "bool":
            self.values[flag.name] = True
        else:
            self._set(flag, self._next_word(f"--{name}"))

    def _read_letters(self, letters: str) -> None:
        """Read '-p 1', '-p1', '-p=1', or bools in one word such as '-nh'."""
        while letters:
            letter, letters = letters[0], letters[1:]
            flag = self.by_letter.get(letter)
            has_value = letters.startswith("=")
            if flag is None:
                self._skip_unknown(f"-{letter}", with_value=has_value)
                if has_value:
                    return
            elif flag.kind == "bool" and not has_value:
                self.values[flag.name] = True
            else:
                self._set(
                    flag, letters.removeprefix("=") if letters else self._next_word(f"-{letter}")
                )
                return

    def _skip_unknown(self, shown: str, *, with_value: bool) -> None:
        if not self.unknown_ok:
            raise UsageError(
                f"unknown flag {_printable(shown)}: --help lists the flags of this command"
            )
        if not with_value and self.words and not self.words[-1].startswith("-"):
            self.words.pop()

    def _next_word(self, shown: str) -> str:
        if not self.words:
            raise UsageError(f"{_printable(shown)}: expected a value after it")
        return self.words.pop()

    def _set(self, flag: Flag, text: str) -> None:
        try:
            value = PARSERS[flag.kind](text)
        except ValueError as error:
            raise UsageError(f"--{flag.name}={text!r}: {error}") from None
        earlier = self.values.get(flag.name)
        if isinstance(value, tuple) and isinstance(earlier, tuple):
            value = earlier + value
        self.values[flag.name] = value


def _printable(text: str) -> str:
    return text if text.isprintable() else repr(text)


def _shown(flag: Flag, value: Value) -> str:
    """Return a value as the user would write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:g}s" if flag.kind == "duration" else str(value)


def render_help(usage: str, summary: str, flags: Sequence[Flag]) -> str:
    """Return the help text of a command: every flag with its meaning, default and variables.

    Args:
        usage: the command as typed, such as 'agent wait [flags]'.
        summary: what the command does, one sentence or more.
        flags: its table; global flags are listed apart, once.
    """
    own = [flag for flag in flags if flag not in GLOBAL_FLAGS]
    lines = [
        *(_wrapped(line) for line in summary.split("\n")),
        "",
        "Usage:",
        f"  {usage}",
    ]
    for title, group in (("Flags", [*own, HELP]), ("Global flags", GLOBAL_FLAGS)):
        lines += ["", f"{title}:", *(line for flag in group for line in _help_lines(flag))]
    return "\n".join(lines) + "\n"


def _help_lines(flag: Flag) -> list[str]:
    letter = f"-{flag.short}, " if flag.short else "    "
    kind = "" if flag.kind == "bool" else f" {flag.kind.removesuffix('s')}"
    notes = f"; default {default}" if (default := _shown(flag, flag.default)) else ""
    notes += f"; variable {', then '.join(flag.env)}" if flag.env else ""
    return [f"  {letter}--{flag.name}{kind}", _wrapped(flag.help + notes, INDENT)]


def _wrapped(text: str, indent: str = "") -> str:
    from textwrap import fill  # noqa: PLC0415 - only people read help

    return fill(
        text,
        HELP_COLUMNS,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,  # names of flags stay whole
    )
