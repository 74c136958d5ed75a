// The overall state, alarms, the sweeper and the config.

import { h, badge, clock, count, percent, span } from "./dom.js";
import { haste, timeLeft } from "./ranges.js";

// overallView is the one word.
export function overallView(status) {
  const kinds = { ready: ["ok", "Ready"], degraded: ["warn", "Degraded"], unavailable: ["bad", "Unavailable"] };
  const [kind, text] = kinds[status.status] || ["off", status.status];
  return badge(kind, text);
}

// programView says which gateway this is.
export function programView(status, uptime) {
  const pair = (name, value) => h("div", null, h("dt", null, name), h("dd", null, value));
  return [
    pair("Version", status.version || "?"), pair("Instance", status.instance || "?"),
    status.started_at ? pair("Up for", span(uptime)) : null,
    pair("Under way", `${count(status.requests.under_way)} of ${count(status.requests.max)}`),
  ];
}

// alarmsView lists what needs a person, the worst first.
export function alarmsView(status, levels, sweeper) {
  const all = [];
  const add = (kind, title, text) => all.push({ kind, title, text });
  for (const d of status.dependencies) {
    if (!d.ok) add("bad", `${d.kind === d.name ? "The " + d.kind : d.name} is down.`, d.reason);
    else if (d.circuits && (d.circuits.reads === "open" || d.circuits.writes === "open")) add("warn", `A circuit of ${d.name} is open.`, "Such calls are refused until a probe is answered.");
  }
  for (const c of levels ? levels.collections : []) {
    if (c.state === "full") add("bad", `${c.collection} is full.`, "No range takes new records: append a node to the config.");
    if (c.state === "alarm") add("bad", `${c.collection} is nearly full.`, `${count(c.left_ids)} IDs are left: append a node to the config.`);
    if (c.state !== "full" && haste(c)) add(haste(c), `${c.collection} has ${timeLeft(c)}.`, `${count(c.growth_ids_per_day)} IDs are used a day: append a node to the config.`);
    if (c.state === "warn") add("warn", `${c.collection} fills up.`, `${count(c.left_ids)} IDs are left.`);
  }
  if (status.config && status.config.result === "refused") add("warn", "The config file is refused.", "The running config stays; the reason is below.");
  const found = sweeper && (sweeper.pass || sweeper.last_pass);
  const counts = found ? found.counts : {};
  if (counts.doubles) add("bad", "Keys with two records.", `The sweeper has found ${count(counts.doubles)}.`);
  if (counts.strays > counts.reindexed) add("bad", "Records without an entry.", `The sweeper has found ${count(counts.strays - counts.reindexed)} that it could not mend.`);
  if (counts.misplaced) add("bad", "Rows where they do not belong.", `The sweeper has found ${count(counts.misplaced)}.`);
  all.sort((a, b) => (a.kind === "bad" ? 0 : 1) - (b.kind === "bad" ? 0 : 1));
  if (!all.length) return null;
  const shown = all.slice(0, 8);
  return h("ul", { class: "alarms" },
    shown.map((a) => h("li", { class: a.kind, "data-id": a.title }, badge(a.kind, a.kind === "bad" ? "Alarm" : "Warning"), h("span", null, h("strong", null, a.title), " ", a.text))),
    all.length > shown.length ? h("li", { "data-id": "more" }, `and ${count(all.length - shown.length)} more`) : null);
}

const phases = { rows: "rows", entries: "entries", second_look: "second look at what was in doubt" };

function passText(p) {
  const where = [p.collection, p.range ? `range ${p.range} on ${p.node}` : null].filter(Boolean).join(", ");
  return phases[p.phase] + (where ? ": " + where : "");
}

function counts(c) {
  const pairs = [["rows", c.rows], ["entries", c.entries], ["fences", c.fences], ["expired, removed", c.expired_removed], ["dangling, removed", c.removed], ["strays, given an entry", c.reindexed],
    ["doubles", c.doubles], ["misplaced", c.misplaced], ["beyond the config", c.beyond], ["fences purged", c.purged]];
  return pairs.filter(([name, n], i) => i < 2 || n).map(([name, n]) => `${count(n)} ${name}`).join(", ");
}

// sweeperView is what the sweeper of the fleet does.
export function sweeperView(sweeper, why) {
  if (!sweeper) return h("p", { class: "hint" }, why ? "Not known: " + why : "Asking ...");
  const states = { active: ["ok", "This gateway sweeps"], standby: ["off", "Standby"], off: ["off", "Off here"] };
  const [kind, text] = states[sweeper.state] || ["off", sweeper.state];
  const { pass, last_pass: last } = sweeper;
  return [
    h("p", null, badge(kind, text), sweeper.state !== "active" && sweeper.holder ? ` ${sweeper.holder} sweeps.` : null,
      sweeper.waits_for ? [" ", badge("warn", "waits for " + sweeper.waits_for)] : null),
    h("dl", { class: "facts" },
      h("dt", null, "Now"), h("dd", null, pass ? passText(pass) + (pass.fraction !== null ? `, ${percent(pass.fraction)}` : "") : "between two passes"),
      pass ? [h("dt", null, "Found so far"), h("dd", null, counts(pass.counts))] : null,
      h("dt", null, "Last pass"), h("dd", null, last ? `ended ${clock(last.finished_at)}: ${counts(last.counts)}` : "none yet")),
    why ? h("p", { class: "hint" }, "Not asked again: " + why) : null,
  ];
}

// configView is what became of the config file.
export function configView(status) {
  const c = status.config;
  if (!c) return h("p", { class: "hint" }, "Not known.");
  const states = { loaded: ["ok", "In force since the start"], applied: ["ok", "Last change is in force"], refused: ["bad", "Last change was refused"] };
  const [kind, text] = states[c.result] || ["off", c.result];
  return [
    h("p", null, badge(kind, text), " ", h("time", { datetime: c.at }, clock(c.at))),
    c.path ? h("p", { class: "hint mono" }, c.path) : null,
    c.reason ? h("pre", { class: "reason", tabindex: 0, role: "group", "aria-label": "Why it was refused" }, c.reason) : null,
    c.changes.length ? h("ul", { class: "changes" }, c.changes.map((line) => h("li", null, line))) : null,
  ];
}
