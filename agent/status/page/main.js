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
let types = null; // the last that were not empty
let cpu = null; // of a core, between the last two
let trouble = ""; // why there is no answer; empty if there is one
let isPaused = false;
let timer = 0;
let asking = null;

async function ask() {
  clearTimeout(timer);
  if (asking || isPaused || document.hidden) return;
  asking = new AbortController();
  const patience = setTimeout(() => asking.abort(new Error("no answer in 15 s")), PATIENCE_MS);
  const notice = setTimeout(renderLink, NOTICE_MS);
  try {
    take(await fetched(asking.signal));
    trouble = "";
  } catch (error) {
    trouble = explain(error);
  } finally {
    clearTimeout(patience);
    clearTimeout(notice);
    asking = null;
  }
  render();
  if (!isPaused && !document.hidden) timer = setTimeout(ask, PERIOD_MS);
}

async function fetched(signal) {
  const answer = await fetch("debug/overview", { signal, cache: "no-store" });
  if (!answer.ok) throw new Error(`status ${answer.status}: ${(await answer.text()).trim()}`);
  return answer.json();
}

function explain(error) {
  if (error instanceof TypeError) return "nothing answers on this port";
  return error instanceof SyntaxError ? "the answer is cut off" : error.message;
}

function take(news) {
  const isAnother = told && news.agent.uptime_seconds < told.agent.uptime_seconds;
  if (isAnother) {
    history.forget();
    types = null;
  }
  cpu = told && !isAnother ? cpuRatio(told.agent, news.agent) : null;
  history.add(news.time, news.activity);
  if (news.xds && Object.keys(news.xds.types).length > 0) types = news.xds.types;
  told = news;
  toldAt = seconds();
}

function cpuRatio(before, now) {
  const elapsed = now.uptime_seconds - before.uptime_seconds;
  return elapsed > 0 ? (now.cpu_seconds - before.cpu_seconds) / elapsed : null;
}

function render() {
  renderLink();
  if (!told) return;
  const filled = {
    readiness: sections.readiness(told),
    xds: sections.xds(told, types),
    activity: chart(history),
    probes: sections.probes(told),
    certificates: sections.certificates(told),
    drain: sections.drain(told),
  };
  show(part("pod"), sections.pod(told, cpu));
  for (const [id, content] of Object.entries(filled)) {
    show(part(id).querySelector(":scope > div"), content);
    part(id).hidden = false;
  }
  part("main").setAttribute("aria-busy", "false");
}

function renderLink() {
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
  const wasEnding = verdict.startsWith("Ending");
  return [
    h("p", { class: "word" }, sections.state("bad", "No connection to the agent")),
    h("p", { class: "reason" }, trouble),
    h("p", { class: "note" }, "Asked again every 2 s. ",
      told && `Below is what was known ${wholeSpan(seconds() - toldAt)} ago, at ${clock(toldAt, seconds())}. `,
      wasEnding ? "The agent was about to end: it is probably gone." : "If it runs, start the port-forward again."),
  ];
}

part("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  part("pause").setAttribute("aria-pressed", String(isPaused));
  if (isPaused) {
    clearTimeout(timer);
    render();
  } else {
    ask();
  }
});
document.addEventListener("visibilitychange", ask);
ask();
