// Asks the agent for one document, again and again, and shows what it says.
//
// While nobody looks (a hidden tab, a pause) nobody asks. Without an answer the last one stays,
// marked as old, and the agent is asked again: a port-forward ends, a container is restarted.

import { History, chart } from "./chart.js";
import * as sections from "./sections.js";
import { h, show } from "./tree.js";
import { clock, wholeSpan } from "./words.js";

const PERIOD_MS = 2000;
//: Envoy may take seconds to say why the pod is not ready; an agent that takes longer hangs.
const PATIENCE_MS = 15000;
const NOTICE_MS = 4000;

const part = (id) => document.getElementById(id);
const seconds = () => Date.now() / 1000;

const history = new History();
let told = null; // the last document
let toldAt = 0; // by this machine's clock
let types = null; // of the last stream on which anything was sent
let trouble = ""; // why there is no answer; empty if there is one
let isPaused = false;
let timer = 0;
let asking = null;

async function ask() {
  clearTimeout(timer);
  if (asking || isPaused || document.hidden) return;
  asking = new AbortController();
  const patience = setTimeout(() => asking.abort(new Error("no answer in 15 s")), PATIENCE_MS);
  const notice = setTimeout(tell, NOTICE_MS);
  try {
    take(await fetched(asking.signal));
    trouble = "";
  } catch (error) {
    const isUnreadable = error instanceof TypeError || error instanceof SyntaxError;
    trouble = isUnreadable ? `the answer cannot be read: ${error.message}` : error.message;
  } finally {
    clearTimeout(patience);
    clearTimeout(notice);
    asking = null;
  }
  tell();
  if (!isPaused && !document.hidden) timer = setTimeout(ask, PERIOD_MS);
}

async function fetched(signal) {
  const answer = await fetch("debug/overview", { signal, cache: "no-store" }).catch((error) => {
    throw signal.aborted ? error : new Error("nothing answers on this port");
  });
  if (!answer.ok) throw new Error(`status ${answer.status}: ${(await answer.text()).trim()}`);
  return answer.json();
}

/** Take a document; one that is not what it should be throws, and changes nothing. */
function take(news) {
  const isAnother = told && news.agent.uptime_seconds < told.agent.uptime_seconds;
  const known = sections.wasSentAny(news.xds) ? news.xds.types : isAnother ? null : types;
  const shown = views(news, known);
  if (isAnother) history.forget();
  history.add(news.time, news.activity);
  types = known;
  told = news;
  toldAt = seconds();
  shown.activity = chart(history);
  for (const [id, content] of Object.entries(shown)) {
    const section = part(id);
    show(section.querySelector(":scope > div") ?? section, content);
    section.hidden = false;
  }
  part("main").setAttribute("aria-busy", "false");
}

function views(news, known) {
  return {
    pod: sections.pod(news, cpuRatio(news)),
    readiness: sections.readiness(news),
    xds: sections.xds(news, known),
    probes: sections.probes(news),
    certificates: sections.certificates(news),
    drain: sections.drain(news),
  };
}

/** Return the share of a core that the agent has used since the last document. */
function cpuRatio({ agent }) {
  const elapsed = told ? agent.uptime_seconds - told.agent.uptime_seconds : 0;
  return elapsed > 0 ? (agent.cpu_seconds - told.agent.cpu_seconds) / elapsed : null;
}

/** Show whether there is an answer at all. */
function tell() {
  const verdict = told ? sections.verdict(told) : "";
  const name = told?.agent.pod || "mesh agent";
  document.title = `${trouble ? "No connection" : verdict.split(":")[0] || "Asking"} – ${name}`;
  document.body.classList.toggle("old", Boolean(trouble && told));
  part("lost").hidden = !trouble;
  if (trouble) show(part("lost"), lost(verdict));
  show(part("link"), link());
  // Told to who cannot see it, when it changes: nothing that ticks.
  show(part("said"), trouble ? `Connection lost: ${trouble}. Trying again.` : isPaused ? "Paused" : verdict);
}

function link() {
  if (isPaused) return sections.state("idle", "paused at ", clock(toldAt, seconds()));
  if (trouble) return sections.state("bad", "no connection");
  if (asking) return told ? sections.state("warn", "waiting for an answer") : "Asking the agent…";
  return sections.state("good", "live, every 2 s");
}

function lost(verdict) {
  const advice = verdict.startsWith("Ending") ? "The agent was about to end: it is probably gone." : "If it runs, start the port-forward again.";
  return [
    h("p", { class: "word" }, sections.state("bad", "No connection to the agent")),
    h("p", { class: "reason" }, trouble),
    h("p", { class: "note" }, "Asked again every 2 s. ",
      told && `Below is what was known ${wholeSpan(seconds() - toldAt)} ago, at ${clock(toldAt, seconds())}. `,
      trouble.startsWith("no") && advice),
  ];
}

part("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  part("pause").setAttribute("aria-pressed", String(isPaused));
  if (isPaused) {
    clearTimeout(timer);
    tell();
  } else {
    ask();
  }
});
document.addEventListener("visibilitychange", ask);
ask();
