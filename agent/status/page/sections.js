// The sections of the page: the agent's document in, elements as values out. Whatever a part of
// the document is missing, the rest is shown; what is missing says so.

import { h } from "./tree.js";
import { age, clock, count, counted, distance, size, span, wholeSpan } from "./words.js";

const SIGNS = { good: "✓", warn: "▲", bad: "✕", idle: "○" };
const TYPES = {
  cds: "clusters", eds: "endpoints", lds: "listeners", rds: "routes", ecds: "extensions",
  sds: "secrets", nds: "DNS names", pcds: "trust bundle",
};
const SYNC = { SYNCED: "good", STALE: "warn", "NOT SENT": "idle" };
//: A certificate with less of its life left than this ought to have been renewed.
const LATE_RATIO = 0.2;
//: Of Envoy's life, as the agent calls them.
const STATES = {
  running: ["idle", "Nobody has asked for an end"],
  draining: ["warn", "Draining: asked by /drain, and going on until there is a signal"],
  terminating: ["warn", "Ending, and draining until then"],
  stopping: ["warn", "Envoy was told to stop"],
  killing: ["bad", "Envoy did not stop, and is killed"],
  restarting: ["bad", "Envoy died; another one is started after a pause"],
  exited: ["bad", "Envoy is gone"],
};

/** Return a state: a sign, so that colour is not alone, and a word. */
export function state(mood, ...words) {
  return h("span", { class: `state ${mood}` }, h("span", { "aria-hidden": "true" }, `${SIGNS[mood]}\u00a0`), words);
}

const facts = (...rows) =>
  h("dl", null, rows.filter(Boolean).map(([name, ...values]) =>
    h("div", { key: name }, h("dt", null, name), h("dd", null, values))));
const when = (time, now) => h("time", { datetime: new Date(time * 1000).toISOString() }, clock(time, now));
//: Beside a name, what it means; the blank is for who hears or copies the text.
const what = (...words) => (words.some(Boolean) ? [" ", h("span", { class: "what" }, words)] : null);
const note = (...words) => h("p", { class: "note" }, words);
//: A long path breaks between its parts.
const code = (text) => h("code", null, text.split(/(?<=\/)/).map((piece) => [piece, h("wbr")]));

/** Return who this is. */
export function pod({ agent, envoy }, cpuRatio) {
  return [
    h("h1", null, agent.pod || "mesh agent"),
    h("p", null, [
      agent.namespace && `namespace ${agent.namespace}`,
      agent.kind,
      agent.address,
      agent.version,
      `up ${wholeSpan(agent.uptime_seconds)}`,
      size(agent.resident_bytes),
      cpuRatio === null ? null : `${(100 * cpuRatio).toFixed(1)} % CPU`,
      envoy.starts > 1 && `Envoy restarted ${counted(envoy.starts - 1, "time")}`,
    ].filter(Boolean).map((text) => h("span", null, text))),
  ];
}

/** Return whether the pod is ready, as one line; said aloud when it changes. */
export function verdict({ readiness, drain }) {
  if (readiness.ready) return "Ready";
  return readiness.check === "terminating" ? `Ending: ${drain?.cause ?? readiness.reason}` : `Not ready: ${readiness.reason}`;
}

/** Return whether the pod is ready, and why not. */
export function readiness(told) {
  const { readiness: found, time: now } = told;
  const isEnding = found.check === "terminating";
  const mood = found.ready ? "good" : isEnding ? "warn" : "bad";
  const word = found.ready ? "Ready" : isEnding ? "Ending, and so not ready" : "Not ready";
  return [
    h("div", { class: `verdict ${mood}` },
      h("p", { class: "word" }, state(mood, word), " ",
        h("span", { class: "since" }, `for ${wholeSpan(found.seconds)}, since `, when(found.since, now))),
      found.reason && h("p", { class: "reason" }, found.reason),
      found.missing.length > 0 &&
        note(`Envoy has yet to count: `, found.missing.map((name) => [code(name), " "])),
      h("ul", { class: "also" }, Object.entries(found.details).map(([name, text]) =>
        h("li", { key: name }, state("warn", name), ` ${text}`))),
      found.ready && found.last_error &&
        note("Last not ready ", distance(found.last_error.time, now), `: ${found.last_error.reason}`)),
    facts(...surroundings(told)),
  ];
}

function surroundings({ readiness: found, envoy, dns, xds, time: now }) {
  const plane = found.control_plane;
  const moods = { connected: "good", connecting: "warn", disconnected: envoy.enabled ? "warn" : "idle" };
  return [
    plane
      ? [envoy.is_local ? "Resources" : "Control plane", code(plane.address), " ",
        envoy.is_local ? note("served by this agent itself") : state(moods[plane.state] ?? "warn", plane.state),
        plane.state === "connected" && plane.last_error && note("last error ", distance(plane.last_error.time, now), `: ${plane.last_error.reason}`)]
      : ["Control plane", note("the relay has not started yet")],
    ["Envoy", envoy.enabled ? envoyState(found, xds) : note("disabled: this pod has none")],
    ["DNS", dns ? names(dns) : note("not captured")],
  ];
}

function envoyState(found, xds) {
  if (found.check === "envoy") return state("bad", "gone");
  return xds?.connection.stream ? state("good", "has a stream to the agent") : state("warn", "has no stream to the agent");
}

function names({ hosts, nameservers }) {
  const table = hosts === null ? "no name table yet" : counted(hosts, "host");
  return [state(hosts === null ? "warn" : "good", table), nameservers.length > 0 && note(`other names: ${nameservers.join(", ")}`)];
}

/** Return whether anything was sent to Envoy on its present stream. */
export const wasSentAny = (xds) => Object.values(xds?.types ?? {}).some((type) => type.sent);

/** Return what Envoy was sent of each type; `known` is of the last stream on which anything was. */
export function xds({ xds: found, time: now }, known) {
  if (!found) return note("The relay has not started yet.");
  const { stream, sessions } = found.connection;
  const isOld = !wasSentAny(found) && known;
  const types = Object.entries(isOld ? known : found.types);
  const refusals = types.filter(([, type]) => type.last_nack);
  return [
    note(stream
      ? [`${stream.kind === "delta" ? "Delta" : "SotW"} stream ${stream.number} since `, when(stream.since, now), "; ",
        counted(stream.requests, "request"), ` (${size(stream.request_bytes)}), `,
        counted(stream.responses, "push", "pushes"), ` (${size(stream.response_bytes)}).`]
      : sessions > 0 ? `Envoy has no stream to the agent now; there were ${count(sessions)}.` : "Envoy has not opened a stream yet."),
    isOld && note(state("warn", "Of a stream that has ended: Envoy keeps what it accepted.")),
    types.length > 0 && h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Pushes by type" },
      h("table", null,
        h("thead", null, h("tr", null,
          ["type", "state", "version"].map((name) => h("th", { scope: "col", key: name }, name)),
          ["resources", "size", "answered in"].map((name) =>
            h("th", { scope: "col", class: "number extra", key: name }, name)),
          h("th", { scope: "col", class: "number" }, "pushed"))),
        h("tbody", null, types.map(([name, type]) => typeRow(name, type, now))))),
    refusals.length > 0 && h("ul", { class: "refusals" }, refusals.map(([name, type]) => refusal(name, type, now))),
  ];
}

function typeRow(name, { state: found, sent, milliseconds, last_nack: refused }, now) {
  const isRefused = refused && sent && refused.nonce === sent.nonce;
  const short = name.split(".").at(-1);
  return h("tr", { key: name },
    h("th", { scope: "row" }, short, what(TYPES[name])),
    h("td", null, isRefused ? state("bad", `${found}, refused`) : state(SYNC[found] ?? "idle", found)),
    h("td", { class: "version" }, sent?.version || "–"),
    h("td", { class: "number extra" }, count(sent?.resources)),
    h("td", { class: "number extra" }, size(sent?.bytes)),
    h("td", { class: "number extra" }, milliseconds === null ? "–" : span(milliseconds / 1000)),
    h("td", { class: "number" }, sent ? age(sent.time, now) : "–"));
}

function refusal(name, { sent, last_nack: refused }, now) {
  const isCurrent = sent && refused.nonce === sent.nonce;
  return h("li", { key: name, class: isCurrent ? "current" : null },
    h("p", null, isCurrent
      ? state("bad", `${name} version ${refused.version || "–"} was refused `, distance(refused.answered, now))
      : state("idle", `${name} version ${refused.version || "–"} was refused `, distance(refused.answered, now), "; a later one was sent")),
    h("pre", { tabindex: "0", role: "group", "aria-label": `Why Envoy refused ${name}` }, refused.error));
}

/** Return the workload's certificates and what they are believed by. */
export function certificates({ certificates: found, time: now }) {
  if (!found) return note("The agent has not started to care for certificates yet.");
  const [leaf, ...rest] = found.chain;
  return [
    found.problem && h("p", { class: "reason" }, state("bad", found.problem)),
    facts(
      ["SPIFFE ID", code(found.spiffe_id)],
      ["Certificate", leaf ? lifetime(leaf, now) : state("idle", found.problem ? "none" : found.source ? "not ours" : "none yet")],
      leaf && leaf.not_after && ["Expires", when(leaf.not_after, now)],
      found.next_renewal && ["Renewal", distance(found.next_renewal, now), ", ", when(found.next_renewal, now)],
      found.source && ["Source", found.source],
      leaf && ["Signed by", leaf.issuer || "–", rest.length > 0 && note(`chain of ${found.chain.length}`)],
      leaf?.serial && ["Serial", code(leaf.serial)],
    ),
    bundle("Trust bundle", found.trust_bundle, found.trust_bundle_size, null, now),
    found.files.map((file) => bundle(file.name, file.certificates, file.size, file.problem, now)),
  ];
}

function lifetime({ unreadable, not_before: from, not_after: until }, now) {
  if (unreadable) return state("bad", unreadable);
  if (until <= now) return state("bad", `expired ${distance(until, now)}`);
  if (from > now) return state("bad", `not valid yet: ${distance(from, now)}`);
  const isLate = (until - now) / (until - from) < LATE_RATIO;
  return [state(isLate ? "warn" : "good", `${wholeSpan(until - now)} left`), what(`of ${wholeSpan(until - from)}`)];
}

function bundle(name, shown, all, problem, now) {
  const summary = problem ? state("bad", problem) : all === 0 ? state("idle", "none") : null;
  return h("details", { key: name },
    h("summary", null, name, ": ", summary ?? [counted(all, "certificate"), ", ", shown[0] && lifetime(shown[0], now)]),
    h("ul", { class: "bundle" }, shown.map((each, index) =>
      h("li", { key: index }, each.subject || each.san?.join(", ") || each.unreadable || "–",
        each.not_after && what("until ", when(each.not_after, now))))),
    all > shown.length && note(`and ${count(all - shown.length)} that expire later`));
}

/** Return how each probe of the application ended last. */
export function probes({ probes: found, time: now }) {
  if (found.length === 0) return note("None goes through the agent.");
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Probes" },
    h("table", null,
      h("thead", null, h("tr", null,
        ["probe", "last result", "asks"].map((name) => h("th", { scope: "col", key: name }, name)),
        ["in a row", "took"].map((name) => h("th", { scope: "col", class: "number extra", key: name }, name)),
        h("th", { scope: "col", class: "number" }, "asked"))),
      h("tbody", null, found.map((probe) => probeRow(probe, now)))));
}

function probeRow({ path, target, timeout_seconds: limit, last }, now) {
  const [, kind, container, name] = path.split("/");
  return h("tr", { key: path },
    h("th", { scope: "row" }, name ?? path, what(container, kind === "app-lifecycle" && " (hook)")),
    h("td", null, last
      ? [state(last.success ? "good" : "bad", last.status), last.reason && h("span", { class: "why" }, last.reason)]
      : state("idle", "not asked yet")),
    h("td", null, h("code", null, target)),
    h("td", { class: "number extra" }, count(last?.times)),
    h("td", { class: "number extra" }, last ? span(last.seconds) : "–", limit && what(`of ${span(limit)}`)),
    h("td", { class: "number" }, last ? age(last.at, now) : "–"));
}

/** Return how the pod will end, and how far it is. */
export function drain({ drain: found, envoy }) {
  if (!found) return note("Not known yet.");
  if (!envoy.enabled) return note("There is no Envoy to drain: the agent ends when it is told to.");
  const waited = found.seconds_since_signal;
  const [mood, sentence] = STATES[found.state] ?? ["warn", found.state];
  return [
    h("p", null, state(mood, sentence),
      found.cause && ` (${found.cause}${waited === null ? "" : `, ${wholeSpan(waited)} ago`})`),
    found.still_active !== null && note(`Still active: ${count(found.still_active)}.`),
    h("ol", { class: "plan" }, steps(found.plan, waited, found.state)),
  ];
}

function steps(plan, waited, current) {
  const value = (name) => plan[name].value;
  const conditions = {
    duration: "Envoy is stopped, whatever goes on",
    connections: "Envoy is stopped once nothing is connected",
    requests: "Envoy is stopped once no request is under way",
    app: "Envoy is stopped once the application is gone",
  };
  const drainAt = Math.min(value("delay_seconds"), value("deadline_seconds"));
  const watchAt = Math.min(value("delay_seconds") + value("minimum_seconds"), value("deadline_seconds"));
  const jitter = value("jitter_ratio");
  const isFixed = value("condition") === "duration";
  const rows = [
    [0, "SIGTERM", "no longer ready", []],
    [drainAt, "drain", "clients are told to leave, new requests still served", ["delay_seconds"]],
    [watchAt, isFixed ? "stop" : "look", conditions[value("condition")], ["condition", "minimum_seconds"]],
    [value("deadline_seconds"), "deadline", "Envoy is stopped, if it still runs", ["deadline_seconds"]],
  ];
  const isStopping = ["stopping", "killing", "exited"].includes(current);
  const listed = rows.map(([at, name, does, fields]) => {
    const isPast = waited !== null && (waited >= at || (isStopping && name !== "deadline"));
    const set = fields.map((field) => plan[field].from).filter((from) => !from.startsWith("default"));
    return h("li", { key: name },
      h("span", { class: "number" }, `+${span(at)}`),
      h("span", null, h("strong", null, name),
        waited !== null && [" ", isPast ? state("good", "done") : state("warn", `in ${wholeSpan(at - waited + 1)}`)],
        what(does, set.length > 0 && ` (${[...new Set(set)].join(", ")})`)));
  });
  return [listed, jitter > 0 && h("li", { key: "jitter" }, h("span", { class: "number" }, "±"),
    h("span", null, what(`the end is moved by up to ${Math.round(100 * jitter)} %, as drawn at the start`)))];
}
