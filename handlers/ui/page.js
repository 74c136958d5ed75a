// The operators' page: asks the gateway every five seconds and shows what it says.

import { h, show, badge, clock } from "./dom.js";
import { rangesView } from "./ranges.js";
import { databasesView } from "./databases.js";
import { trafficView } from "./traffic.js";
import { alarmsView, configView, overallView, programView, sweeperView } from "./state.js";
import { lookupView } from "./lookup.js";

const every = 5000; // ms from one look to the next
const patience = 4500; // ms for an answer
const longPatience = 20000; // ms for a survey of the ranges
const rest = 20; // a survey that takes long is not asked for again before so many times as long
const secretKey = "keyrange.secret";

const at = (id) => document.getElementById(id);
const known = { status: null, ranges: null, rangesWhy: "", sweeper: null, sweeperWhy: "", history: null };
let silentSince = 0; // when the gateway ceased to answer; 0 while it answers
let answeredAt = 0;
let paused = false;
let nextSurvey = 0;
let surveying = false;
let timer = 0;

class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

// ask fetches a document of the gateway. It throws a Refused for an answer that is none, and another error for no answer.
async function ask(path, wait = patience) {
  const secret = sessionStorage.getItem(secretKey);
  const answer = await fetch(path, {
    headers: secret ? { Authorization: "Bearer " + secret } : {}, cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(wait),
  });
  const body = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refused(answer.status, (body && body.detail) || `The gateway answers ${answer.status}.`);
  return body;
}

// askOptional is ask for what the rest does without; why is the reason when there is nothing new.
async function askOptional(path, wait) {
  try {
    return { value: await ask(path, wait), why: "" };
  } catch (error) {
    return { why: error instanceof Refused ? error.message : "no answer in time" };
  }
}

async function survey() {
  if (surveying || performance.now() < nextSurvey) return;
  surveying = true;
  const began = performance.now();
  const { value, why } = await askOptional("../admin/ranges", longPatience);
  surveying = false;
  nextSurvey = performance.now() + (performance.now() - began) * rest;
  known.ranges = value || known.ranges;
  known.rangesWhy = why;
  draw();
}

async function look() {
  clearTimeout(timer);
  try {
    known.status = await ask("../admin/status");
    answeredAt = Date.now();
    silentSince = 0;
    at("ask").hidden = true;
    const surveyed = survey();
    const [history, sweeper] = await Promise.all([askOptional("../admin/history"), askOptional("../admin/sweeper")]);
    known.history = history.value || known.history;
    known.sweeper = sweeper.value || known.sweeper;
    known.sweeperWhy = sweeper.why;
    if (!known.ranges) await surveyed;
  } catch (error) {
    if (error instanceof Refused && (error.status === 401 || error.status === 403)) askWho(error);
    else silentSince = silentSince || Date.now();
  }
  draw();
  clearTimeout(timer);
  if (!paused && at("ask").hidden) timer = setTimeout(look, document.hidden ? every * 6 : every);
}

// askWho shows the question for a key.
function askWho(error) {
  const tried = sessionStorage.getItem(secretKey) !== null;
  at("ask-why").textContent = tried ? "The gateway refuses this key: " + error.message : "This gateway asks who you are.";
  if (at("ask").hidden) {
    at("ask").hidden = false;
    at("secret").focus();
  }
}

function draw() {
  const { status, ranges, sweeper, history } = known;
  const asking = !at("ask").hidden;
  document.body.classList.toggle("stale", silentSince > 0);
  show(at("trouble"), silentSince ? h("p", null, h("strong", null, "The gateway does not answer"), ` since ${clock(silentSince)}. `,
    answeredAt ? `What is shown is from ${clock(answeredAt)}.` : "", paused ? "" : " Trying again.") : null);
  at("main").hidden = !status || asking;
  at("forget").hidden = sessionStorage.getItem(secretKey) === null;
  show(at("asof"), answeredAt ? [paused ? "paused, as of " : "as of ", h("time", { datetime: new Date(answeredAt).toISOString() }, clock(answeredAt))] : "");
  if (!status || asking) {
    document.title = "keyrange";
    return;
  }
  const uptime = status.started_at ? (Date.parse(status.at) - Date.parse(status.started_at)) / 1000 : Infinity;
  document.title = `${silentSince ? "no answer" : status.status} – keyrange ${status.instance}`;
  show(at("overall"), silentSince ? badge("bad", "No answer") : overallView(status));
  show(at("program"), programView(status, uptime));
  show(at("alarms"), alarmsView(status, ranges, sweeper));
  show(at("ranges"), rangesView(ranges, status, known.rangesWhy));
  show(at("databases"), databasesView(status, ranges));
  if (history) show(at("traffic"), trafficView(history, uptime));
  show(at("sweeper"), sweeperView(sweeper, known.sweeperWhy));
  show(at("config"), configView(status));
  show(at("lookup-collection"), status.collections.map((name) => h("option", { value: name }, name)));
  document.body.dataset.drawn = "true";
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(secretKey, at("secret").value.trim());
  at("secret").value = "";
  look();
});

at("forget").addEventListener("click", () => {
  sessionStorage.removeItem(secretKey);
  Object.assign(known, { status: null, ranges: null, sweeper: null, history: null });
  show(at("path"));
  look();
});

at("pause").addEventListener("click", () => {
  paused = !paused;
  at("pause").setAttribute("aria-pressed", String(paused));
  at("pause").textContent = paused ? "Go on" : "Pause";
  if (paused) {
    clearTimeout(timer);
    draw();
  } else look();
});

at("lookup").addEventListener("submit", async (event) => {
  event.preventDefault();
  const query = new URLSearchParams({ collection: at("lookup-collection").value, key: at("lookup-key").value });
  const { value, why } = await askOptional("../admin/lookup?" + query);
  show(at("path"), value ? lookupView(value) : h("p", { class: "notice" }, why));
});

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !paused && at("ask").hidden) look();
});

look();
