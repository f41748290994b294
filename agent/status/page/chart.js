// What happened since the page was opened, as bars over time: one row for each kind.
//
// The agent counts and keeps no history: the page does, out of what the counts are at each look.
// A bar is as wide as the time between two looks, and as high as what happened in two seconds of
// it, so that its area is what was counted.

import { count, wholeSpan } from "./words.js";
import { h } from "./tree.js";

const SHOWN_SECONDS = 300;
const RECENT_SECONDS = 60;
const BAR_SECONDS = 2;
const WIDTH = 600;
const HEIGHT = 26;
const KINDS = [
  ["pushes", "pushes", "to Envoy", "refused"],
  ["xds_requests", "xDS requests", "of Envoy, ACKs among them"],
  ["readiness", "readiness", "is this pod ready?"],
  ["probes", "probes", "of the application"],
  ["scrapes", "scrapes", "of metrics"],
  ["dns_queries", "DNS queries", "of the application"],
];

export class History {
  constructor() {
    this.forget();
  }

  /** Begin anew, as where the agent has. */
  forget() {
    this.looks = []; // {time, counts}
  }

  /** Take the counts of one look. */
  add(time, counts) {
    this.looks.push({ time, counts });
    while (this.looks.length > 2 && this.looks[1].time < time - SHOWN_SECONDS) this.looks.shift();
  }

  /** Return [{from, to, amount}] of a kind, for each two looks that follow each other. */
  steps(kind) {
    return this.looks.slice(1).map((look, index) => {
      const before = this.looks[index];
      const amount = Math.max((look.counts[kind] ?? 0) - (before.counts[kind] ?? 0), 0);
      return { from: before.time, to: look.time, amount };
    });
  }
}

/** Return the table of all kinds that there are. */
export function chart(history) {
  const last = history.looks.at(-1);
  const seen = Math.min(last.time - history.looks[0].time, RECENT_SECONDS);
  const recent = seen < RECENT_SECONDS ? `last ${wholeSpan(seen)}` : "last 60 s";
  const rows = KINDS.filter(([kind]) => last.counts[kind] !== null);
  return [
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Activity, by kind" },
      h("table", { class: "activity" },
        h("thead", null, h("tr", null,
          h("th", { scope: "col" }, "kind"),
          h("th", { scope: "col" }, axis()),
          h("th", { scope: "col", class: "number extra" }, "highest"),
          h("th", { scope: "col", class: "number" }, recent),
          h("th", { scope: "col", class: "number" }, "in all"))),
        h("tbody", null, rows.map((row) => kindRow(history, last, row))))),
    h("p", { class: "note" }, "Bars begin when this page is opened; one is what was counted in ",
      `${BAR_SECONDS} s. “In all” is since the agent started.`),
  ];
}

function axis() {
  const minutes = ["5 min ago", "4", "3", "2", "1"].map((text) => h("span", { key: text }, text));
  return h("div", { class: "axis" }, minutes, h("span", { key: "now" }, "now"));
}

function kindRow(history, last, [kind, name, what, marked]) {
  const steps = history.steps(kind);
  const refused = marked ? history.steps(marked) : [];
  const since = last.time - RECENT_SECONDS;
  const recent = sum(steps.filter((step) => step.to > since));
  const highest = Math.max(0, ...steps.map(height));
  const said = marked ? refusals(last.counts[marked], sum(refused.filter((step) => step.to > since))) : null;
  return h("tr", { key: kind },
    h("th", { scope: "row" }, name, " ", said ?? h("span", { class: "what" }, what)),
    h("td", null, drawing(last.time, steps, refused, highest, `${name}: ${count(recent)} lately, ${count(last.counts[kind])} in all`)),
    h("td", { class: "number extra" }, highest ? count(Math.max(Math.round(highest), 1)) : "–"),
    h("td", { class: "number" }, count(recent)),
    h("td", { class: "number" }, count(last.counts[kind])));
}

function refusals(all, recent) {
  if (!all) return null;
  return h("strong", { class: "state bad" }, h("span", { "aria-hidden": "true" }, "▼\u00a0"),
    `${count(all)} refused, ${count(recent)} lately`);
}

function drawing(now, steps, refused, highest, label) {
  const x = (time) => round(WIDTH * (1 - (now - Math.max(time, now - SHOWN_SECONDS)) / SHOWN_SECONDS));
  const bars = steps.filter((step) => step.amount > 0).map((step) => {
    const left = x(step.from);
    const width = round(Math.max(x(step.to) - left - 0.6, 1));
    const top = round(HEIGHT - Math.max((HEIGHT - 6) * (height(step) / highest), 1.5));
    return `M${left} ${HEIGHT}V${top}h${width}V${HEIGHT}z`;
  });
  // Downwards, above the bar: a shape, and not a colour alone, says what was refused.
  const marks = refused.filter((step) => step.amount > 0).map((step) => `M${round(x(step.to) - 7)} 0h12l-6 6z`);
  const minutes = [1, 2, 3, 4].map((minute) => `M${x(now - 60 * minute)} 0V${HEIGHT}`);
  return h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    h("path", { class: "grid", d: `${minutes.join("")}M0 ${HEIGHT}H${WIDTH}` }),
    h("path", { class: "bars", d: bars.join("") }),
    h("path", { class: "refused", d: marks.join("") }));
}

const height = (step) => (step.amount * BAR_SECONDS) / Math.max(step.to - step.from, BAR_SECONDS / 2);
const sum = (steps) => steps.reduce((total, step) => total + step.amount, 0);
const round = (value) => Math.round(value * 10) / 10;
