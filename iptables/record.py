"""Whose the rules of interfaces are: a note that runs leave for the next one, in the kernel.

Nothing in '-i eth1 -j RETURN' tells who installed it, nor does its place: others append, insert
and stand next to it. Its text is the reference's to the letter, and no chain can be added to what
is installed. So a run that installs such rules, or finds some that look so, notes which are its own
as the alias of `lo` (ip-link(8)). It lives exactly as long as the rules do, in the network
namespace, whichever container comes next. Without a note the rules of before are the reference's,
or there were none.

Source: traffic-capture.md sections 5.2 steps 1 to 3, and 9.5.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from iptables.config import Actions, CaptureConfig, Inbound, Mode
from iptables.plan import interface_rules
from iptables.rules import Rule

PREFIX: Final = "istio-iptables:"
TRANSPARENT: Final = "mode=TPROXY"
IPV6: Final = "ipv6=true"
LONGEST: Final = 255  # IFALIASZ without the zero at the end


class Record(NamedTuple):
    """The interfaces that have rules of ours."""

    excluded: tuple[str, ...] = ()
    virtual: tuple[str, ...] = ()
    is_transparent: bool = False  #: table mangle has rules of excluded ones too
    has_ipv6: bool = False  #: the tables of IPv6 have them too

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Return the rules that are ours."""
        mode: Mode = "TPROXY" if self.is_transparent else "REDIRECT"
        config = CaptureConfig(
            inbound=Inbound(mode=mode),
            exclude_interfaces=self.excluded,
            virtual_interfaces=self.virtual,
        )
        return tuple(interface_rules(config))


def parse(alias: str) -> Record | None:
    """Return what an alias says, None for none or one of somebody else."""
    if not alias.startswith(PREFIX):
        return None
    words = alias.split()
    values = dict(word.split("=", 1) for word in words if "=" in word)
    excluded, virtual = (
        tuple(filter(None, values.get(key, "").split(","))) for key in ("excluded", "virtual")
    )
    return Record(excluded, virtual, TRANSPARENT in words, IPV6 in words)


def render(record: Record | None) -> str:
    """Return the alias that says so, '' for no record, or one that is too long for an alias."""
    if record is None:
        return ""
    words = [
        PREFIX,
        f"excluded={','.join(record.excluded)}",
        f"virtual={','.join(record.virtual)}",
        TRANSPARENT if record.is_transparent else "",
        IPV6 if record.has_ipv6 else "",
    ]
    text = " ".join(filter(None, words))
    return text if len(text.encode()) <= LONGEST else ""


def is_free(alias: str) -> bool:
    """Return whether an alias may be replaced: it is ours, or there is none."""
    return not alias or alias.startswith(PREFIX)


def following(
    before: Record | None,
    config: CaptureConfig,
    actions: Actions,
    *,
    is_changed: bool,
    has_look_alikes: bool,
) -> Record | None:
    """Return the record once a run is done, None where there is nothing to be told apart.

    Args:
        before: the record until now.
        config: what is installed.
        actions: what the user asked for.
        is_changed: rules in tables of the iptables tools are changed; else they are as asked for.
        has_look_alikes: rules of others look like those of an interface.
    """
    if actions.cleanup_only:
        return None
    if not is_changed and (before is None or actions.native_nftables):
        return before
    if actions.native_nftables:
        return None
    after = Record(
        config.exclude_interfaces,
        config.virtual_interfaces,
        config.inbound.mode == "TPROXY",
        config.families.ipv6,
    )
    stays = before if before and before.has_ipv6 and not after.has_ipv6 else None
    is_needed = after.excluded or after.virtual or has_look_alikes or not is_changed
    return merged(after if is_needed else None, stays)


def merged(first: Record | None, second: Record | None) -> Record | None:
    """Return a record of what either says: true while one is replaced by the other."""
    if not first or not second:
        return first or second
    return Record(
        _union(first.excluded, second.excluded),
        _union(first.virtual, second.virtual),
        first.is_transparent or second.is_transparent,
        first.has_ipv6 or second.has_ipv6,
    )


def _union(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    """Return what either has, as often as the one that has it more often."""
    found = list(first)
    left = list(first)
    for item in second:
        if item in left:
            left.remove(item)
        else:
            found.append(item)
    return tuple(found)
