"""`istio-iptables`: captures this network namespace's traffic for Envoy.

Source: traffic-capture.md sections 1, 2, 3, 10 and 13.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from iptables import client, config, record, report, rules, run
from iptables.config import Actions, CaptureConfig, Settings
from iptables.decide import Change, Plans, look_alikes_of
from iptables.errors import CaptureError, ConfigError
from iptables.flags import Parsed, UsageError, parse_flags, render_help
from iptables.host import Account, HostFacts
from iptables.installed import as_saved, replace
from iptables.lock import client as lock
from iptables.log import Log, open_log
from iptables.netlink import FAMILIES, IPV4, IPV6, Family
from iptables.nft import client as nftables
from iptables.normal import Names
from iptables.options import FLAGS, spelled_out
from iptables.ownership import find_own
from iptables.plan import plan
from iptables.process import lacks_net_admin
from iptables.routing import changes
from iptables.routing import client as routing
from iptables.rules import Owner, Table

if TYPE_CHECKING:
    from iptables.explain.flow import Flow

USAGE_STATUS: Final = 255  # traffic-capture.md section 2.3
INVALID_STATUS: Final = 126  # ditto: the repair controller of Istio CNI looks for it
DIFFERENT_STATUS: Final = 2  # of --plan
RESOLV_CONF: Final = "/etc/resolv.conf"
SUMMARY: Final = (
    "Captures the traffic of this network namespace for Envoy: programs the packet filter, or "
    "with --cleanup-only removes what it programmed. The exit code is 1 if it failed, 2 if --plan "
    "found a difference, 126 if --run-validation did, 255 if the flags cannot be understood.\n\n"
    "Variables without a flag: ENVOY_USER (istio-proxy), the proxy's user where no uid is given; "
    "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR (127.0.0.1/32), what counts as localhost; "
    "ISTIO_OUTBOUND_OWNER_GROUPS (*) and ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE, groups whose "
    "outbound traffic is captured, or not; DRY_RUN_FILE_PATH, a file for a dry run's transcript; "
    f"{config.ALL_IDENTITIES} (false), loopback calls of every proxy identity "
    "are captured, not only those of the first; "
    f"{config.DNS_EXCLUSIONS} (false), what is excluded from capture is excluded from "
    "DNS capture too."
)


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the command; return its exit status.

    Args:
        argv: the words after the command's name.
        environ: where flags are pre-set.
    """
    try:
        flags = parse_flags(FLAGS, spelled_out(argv), environ=environ)
        flow = _flow(flags)
        log = open_log(flags, usual_target="stderr" if has_output(flags) else "stdout")
    except UsageError as error:
        sys.stderr.write(f"Error: {error}\n")
        Log().write("error", str(error))
        return USAGE_STATUS
    if flags.help:
        sys.stdout.write(render_help("istio-iptables [flags]", SUMMARY, FLAGS))
        return 0
    if flags.is_on("cni-mode") and not has_output(flags):
        from iptables.sandbox.process import run_sandboxed  # noqa: PLC0415 - as in _flow

        kept = dict(environ)  # the sandbox has none
        lock_file = flags.text("network-namespace")
        return run_sandboxed(lambda: _run(None, flags, kept, log), log, lock_file=lock_file)
    return _run(flow, flags, environ, log)


def _run(flow: "Flow | None", flags: Parsed, environ: Mapping[str, str], log: Log) -> int:
    """Do what was asked for; return the exit status."""
    try:
        if flow:
            return _explain(flow, flags, environ, log)
        return _capture(flags, environ, log)
    except ConfigError as error:
        for problem in error.problems:
            log.write("error", problem)
        return error.exit_code
    except CaptureError as error:
        log.write("error", str(error))
        return error.exit_code
    finally:
        log.flush()


def has_output(flags: Parsed) -> bool:
    """Return whether standard output is for what was asked for, and not for the log."""
    return flags.is_on("dry-run") or flags.is_on("plan") or bool(flags.text("explain"))


def _flow(flags: Parsed) -> "Flow | None":
    """Return the flow that is to be explained, if one is."""
    if flags.text("output") not in ("", "json"):
        raise UsageError(f"--output={flags.text('output')!r}: expected 'json' or nothing")
    text = flags.text("explain")
    if not text and "explain" not in flags.given:
        for name in ("live", "output"):
            if name in flags.given:
                raise UsageError(f"--{name}: expected only beside --explain")
        return None
    from iptables.explain.flow import FlowError, parse_flow  # noqa: PLC0415 - only if asked for

    try:
        return parse_flow(text)
    except FlowError as error:
        raise UsageError(f"--explain={text!r}: {error}") from error


def _explain(flow: "Flow", flags: Parsed, environ: Mapping[str, str], log: Log) -> int:
    """Print what becomes of a flow."""
    from iptables.explain import run as explain  # noqa: PLC0415 - as in _flow

    facts = _facts(flags, environ)
    family: Family = IPV6 if flow.source.address.version == IPV6 else IPV4
    settings = config.parse_settings(flags, environ, facts, explained=family)
    for warning in settings.warnings:
        log.write("warn", warning)
    names = _names({family: plan(settings.config, family) for family in FAMILIES})
    is_json = flags.text("output") == "json"
    explain.show(flow, settings, facts, names, live=flags.is_on("live"), as_json=is_json)
    return 0


def _capture(flags: Parsed, environ: Mapping[str, str], log: Log) -> int:
    facts = _facts(flags, environ)
    settings = config.parse_settings(flags, environ, facts)
    capture, actions = settings.config, settings.actions
    if not actions.only_compare:
        log.write("info", report.environment(environ, native_nftables=actions.native_nftables))
        log.write("info", report.settings(capture, actions, dual_stack=flags.is_on("dual-stack")))
    for warning in settings.warnings:
        log.write("warn", warning)
    plans = {family: plan(capture, family) for family in FAMILIES}
    if actions.only_compare:
        return _compare(plans, capture, actions, facts, log)
    _apply(plans, capture, actions, facts, log)
    if actions.run_validation and not _is_valid(plans, settings, facts, flags, log):
        return INVALID_STATUS
    return 0


def _apply(
    plans: Plans, capture: CaptureConfig, actions: Actions, facts: HostFacts, log: Log
) -> None:
    """Change rules, or show them, or leave them."""
    if actions.skip_rule_apply:
        log.write("info", "rules are left as they are, as --skip-rule-apply asks")
    elif actions.dry_run and actions.native_nftables:
        _show_native(plan(capture, *capture.families.captured), actions, log)
    elif actions.dry_run:
        _show({family: plans[family] for family in capture.families.captured}, actions, log)
    elif capture.inbound.mode == "NONE" and not actions.cleanup_only:
        log.write("info", "nothing is captured in mode NONE, and no rule is changed")
    else:
        _change(plans, capture, actions, facts, log)


def _facts(flags: Parsed, environ: Mapping[str, str]) -> HostFacts:
    """Read from the host what the settings depend on."""
    account = None
    if config.needs_account(flags):
        account = _account(environ.get("ENVOY_USER", "istio-proxy"))
    text, problem = None, ""
    if config.needs_resolv_conf(flags):
        try:
            with open(RESOLV_CONF, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - pathlib is slow
                text = file.read()
        except OSError as error:
            problem = error.strerror or str(error)
    addresses, alias = client.addresses_and_alias()
    return HostFacts(tuple(addresses), account, text, problem, alias)


def _account(name: str) -> Account | None:
    import pwd  # noqa: PLC0415 - loads the name service, which injected pods do not need

    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(entry.pw_uid, entry.pw_gid)


def _names(plans: Plans) -> Names:
    """Return the numbers of the users and groups that rules name.

    Raises:
        ConfigError: there is no such user or group, which the tools would refuse.
    """
    owners = {
        (match.kind, match.owner)
        for planned in plans.values()
        for table in planned
        for rule in table.rules
        for match in rule.matches
        if isinstance(match, Owner) and not match.owner[0].isdigit()
    }
    if not owners:
        return {}
    import grp  # noqa: PLC0415 - as in _account
    import pwd  # noqa: PLC0415 - as in _account

    names = {}
    problems = []
    for kind, name in sorted(owners):
        try:
            number = pwd.getpwnam(name).pw_uid if kind == "uid" else grp.getgrnam(name).gr_gid
            names[f"--{kind}-owner", name] = str(number)
        except KeyError:
            problems.append(f"there is no {'user' if kind == 'uid' else 'group'} {name!r} here")
    if problems:
        raise ConfigError(problems)
    return names


def _change(
    plans: Plans,
    capture: CaptureConfig,
    actions: Actions,
    facts: HostFacts,
    log: Log,
) -> None:
    """Change the rules, and the routing that goes with them: all of it or nothing."""
    with lock.held(log):
        # Another run may have added or removed one until it was our turn.
        addresses, alias = client.addresses_and_alias()
        now = facts._replace(addresses=tuple(addresses), loopback_alias=alias)
        _change_alone(plans, capture, actions, now, log)


def _change_alone(
    plans: Plans,
    capture: CaptureConfig,
    actions: Actions,
    facts: HostFacts,
    log: Log,
) -> None:
    """Do what `_change` does, while nobody else does."""
    before = record.parse(facts.loopback_alias)

    @contextmanager
    def around(made: Sequence[Change], others: Sequence[tuple[Family, int]] = ()) -> Iterator[None]:
        installed = [(change.store.family, change.before) for change in made]
        marks = changes.marks(capture, installed, actions, others)
        wanted = changes.mark_changes(marks, routing.find(marks))
        wanted = [*changes.address_changes(capture, facts, actions), *wanted]
        after = record.following(
            before,
            capture,
            actions,
            is_changed=bool(made),
            has_look_alikes=any(map(look_alikes_of, made)),
        )
        with routing.noted(before, after, facts, log), routing.changed(wanted, log):
            yield

    names = _names(plans)
    if not actions.native_nftables and not nftables.has_tables():
        beside = run.Beside(around)
        run.apply(plans, actions, capture.families, names, log, record=before, beside=beside)
        return
    from iptables.nft import run as native  # noqa: PLC0415 - few pods need it

    if actions.native_nftables:
        native.apply(capture, actions, names, log, record=before, around=around)
        return
    others = native.marks()
    beside = run.Beside(lambda made: around(made, others), lambda: native.remove(log))
    run.apply(plans, actions, capture.families, names, log, record=before, beside=beside)


def _is_valid(plans: Plans, settings: Settings, facts: HostFacts, flags: Parsed, log: Log) -> bool:
    """Return whether real connections are captured; the log says which are not, and what to do."""
    from iptables.validate import probes  # noqa: PLC0415 - as in _change
    from iptables.validate.run import validate  # noqa: PLC0415 - as in _change

    capture, actions = settings.config, settings.actions
    if capture.inbound.mode == "NONE":
        log.write("info", "nothing is captured in mode NONE, and nothing to be validated")
        return True
    addresses, alias = client.addresses_and_alias()
    facts = facts._replace(addresses=tuple(addresses), loopback_alias=alias)
    is_valid = validate(
        plans,
        settings,
        facts.addresses,
        log,
        names=_names(plans),
        probe_port=flags.number("iptables-probe-port"),
        timeout_seconds=flags.seconds("probe-timeout"),
    )
    if not is_valid:
        _log_differences("error", plans, settings, facts, log)
        log.write("error", probes.FAILED)
    elif actions.skip_rule_apply:
        _log_differences("warn", plans, settings, facts, log)
    return is_valid


def _log_differences(
    level: str, plans: Plans, settings: Settings, facts: HostFacts, log: Log
) -> None:
    """Log where installed rules differ from the plan, if this process may read them.

    Connections from here do not prove all of it, such as the jump to what comes from elsewhere.
    """
    if lacks_net_admin():
        return
    capture, actions = settings.config, settings.actions
    from iptables.compare import difference  # noqa: PLC0415 - as in _change
    from iptables.compare.run import compare  # noqa: PLC0415 - as in _change

    try:
        found = compare(plans, capture, actions, facts, names=_names(plans), log=log)
    except CaptureError as error:
        log.write("warn", str(error))
        return
    if found or level == "error":
        log.write(level, f"installed rules and the plan: {difference.render(found)}")
    else:
        log.write("info", "the installed rules were read: they are as planned")


def _compare(
    plans: Plans, capture: CaptureConfig, actions: Actions, facts: HostFacts, log: Log
) -> int:
    """Print what would change; return whether anything would as the exit status."""
    from iptables.compare import difference  # noqa: PLC0415 - as in _change
    from iptables.compare.run import compare  # noqa: PLC0415 - as in _change

    found = compare(plans, capture, actions, facts, names=_names(plans), log=log)
    sys.stdout.write(difference.render(found, coloured=sys.stdout.isatty()))
    return DIFFERENT_STATUS if found else 0


def _show(plans: Plans, actions: Actions, log: Log) -> None:
    """Print the restore input of each family and run nothing.

    Of a cleanup, the input that would remove the rules of this very configuration: what is
    installed is not looked at.
    """
    log.write("info", "running iptables in dry-run mode, no rule changes will be made")
    for family, planned in plans.items():
        tool = "ip6tables-restore" if family == IPV6 else "iptables-restore"
        if actions.cleanup_only:
            text = replace(find_own(as_saved(planned), planned), ())
        else:
            text = rules.render_plan(planned, explained=True)
        sys.stdout.write(f"# IPv{family}: input of {tool} --noflush\n{text}")
    if actions.dry_run_file:
        _write_transcript(plans, actions.dry_run_file)


def _show_native(planned: Sequence[Table], actions: Actions, log: Log) -> None:
    """Print the input of nft and run nothing. Source: section 17.9."""
    from iptables.nft.text import removal, transaction  # noqa: PLC0415 - as in _change

    log.write("info", "running nftables in dry-run mode, no rule changes will be made")
    text = removal() if actions.cleanup_only else transaction(planned, explained=True)
    sys.stdout.write(f"# input of nft -f -\n{text}")
    if actions.dry_run_file:
        _write(actions.dry_run_file, removal() if actions.cleanup_only else transaction(planned))


def _write_transcript(plans: Plans, path: str) -> None:
    """Write what would be run, as the reference does. Source: sections 13, 17.18, 18."""
    saves = ["iptables-save", "ip6tables-save"]
    texts = [rules.render_plan(planned) for planned in plans.values()]
    lines = "\n".join([*saves, *(line for text in texts for line in text.splitlines())])
    after = "\n".join(saves[: len(plans)])
    _write(path, f"{lines}\n{after}\n")


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - pathlib is slow
            file.write(text)
    except OSError as error:
        raise CaptureError(f"DRY_RUN_FILE_PATH={path!r}: {error.strerror}") from error
