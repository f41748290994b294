"""What /debug/ answers: the endpoints below it, for who does not know them by heart."""

from typing import Final

ENTRIES: Final = {
    "/debug/certs": "certificates, roots, time left",
    "/debug/config": "the settings in force",
    "/debug/drain": "how the pod will end, and how far it is",
    "/debug/logging": "log levels; POST ?level=SCOPE:LEVEL&for=DURATION sets others for a while",
    "/debug/memory": "what the agent's memory holds",
    "/debug/ndsz": "the DNS table",
    "/debug/overview": "what the page at / shows",
    "/debug/syncz": "what Envoy was sent and what it said to that",
    "/debug/syncz/watch": "the same, then each push as a line",
    "/debug/tasks": "what the agent waits for",
}
PROFILES: Final = {"/debug/pprof/": "process information"}


def index(*, profiling: bool) -> str:
    """Return the endpoints as lines of text, with what each shows."""
    entries = {**ENTRIES, **(PROFILES if profiling else {})}
    return "".join(f"{path:<20}{shown}\n" for path, shown in sorted(entries.items()))
