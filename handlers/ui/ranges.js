// How full the ranges of each collection are.

import { h, about, badge, clock, count, percent, size } from "./dom.js";

const manyNodes = 8; // from here on nodes are folded up, but for those that take new records

// bar is a range, or several, as a track that fills up. Marks are shares at which something happens.
function bar(share, kind, label, marks = []) {
  const width = Math.max(0, Math.min(1, share)) * 100;
  return h("svg", { class: "bar " + kind, role: "img", "aria-label": label, preserveAspectRatio: "none", viewBox: "0 0 100 10" },
    h("rect", { class: "track", width: 100, height: 10 }),
    h("rect", { class: "fill", width: width > 0 ? Math.max(width, 0.6).toFixed(2) : 0, height: 10 }),
    marks.map((m) => h("line", { class: "tick", x1: (m * 100).toFixed(1), x2: (m * 100).toFixed(1), y1: 0, y2: 10 })));
}

const old = 30000; // ms from which on the age of a survey is told: one that takes long is not made all the time

// levels are the words and badges for the states of a collection.
const levels = { ok: ["ok", "ok"], warn: ["warn", "warning: fills up"], alarm: ["bad", "alarm: nearly full"], full: ["bad", "full"] };

// spans takes a list of ranges in the words of config apart: "1-5,9".
export function spans(text) {
  return (text || "").split(",").filter(Boolean).map((part) => {
    const [first, last] = part.trim().split("-").map(Number);
    return [first, last || first];
  });
}

// untouched lists the spans of a node in which no range is in use.
function untouched(node, used) {
  const known = new Set(used.map((r) => r.range));
  const gaps = [];
  for (const [first, last] of spans(node.ranges)) {
    let from = first;
    for (const number of [...known].filter((n) => n >= first && n <= last).sort((a, b) => a - b)) {
      if (number > from) gaps.push([from, number - 1]);
      from = number + 1;
    }
    if (from <= last) gaps.push([from, last]);
  }
  return gaps;
}

const words = ([first, last]) => (first === last ? `range ${first}` : `ranges ${first} to ${last}`);

function rangeRow(r, node) {
  const ids = r.last_id - r.first_id + 1;
  const share = r.issued_ids / ids;
  const down = node && !node.ok;
  const kind = down ? "down" : r.drained ? "drained" : share >= 1 ? "complete" : "used";
  const estimate = r.exact ? "" : "≈ ";
  return h("li", { class: "range", "data-id": r.range },
    h("span", { class: "what" }, `range ${r.range}`),
    bar(share, kind, `range ${r.range} on ${r.node}: ${percent(share)} of its IDs issued`),
    h("span", { class: "share" }, (r.complete ? "" : "≥ ") + percent(share)),
    h("span", { class: "facts" },
      h("span", null, r.live_rows === null ? "records unknown" : estimate + about(r.live_rows) + " records"),
      h("span", null, r.bytes === null ? "size unknown" : estimate + size(r.bytes)),
      r.open && !down ? badge("ok", "takes new records") : null));
}

function gapRow(gap, size) {
  const ranges = gap[1] - gap[0] + 1;
  return h("li", { class: "range gap", "data-id": "gap" + gap[0] },
    h("span", { class: "what" }, words(gap)),
    bar(0, "used", `${words(gap)}: untouched`),
    h("span", { class: "share" }, percent(0)),
    h("span", { class: "facts" }, h("span", null, `untouched, ${count(ranges * size)} IDs`)));
}

function nodeGroup(node, used, rangeSize, fold) {
  const gaps = untouched(node, used);
  const numbers = spans(node.ranges).reduce((sum, [first, last]) => sum + last - first + 1, 0);
  const issued = used.reduce((sum, r) => sum + r.issued_ids, 0);
  const share = numbers ? issued / (numbers * rangeSize) : 0;
  const summary = [
    h("span", { class: "name" }, node.name),
    node.ok ? null : badge("bad", "down"),
    node.drained ? badge("off", "drained") : null,
    numbers > 1 ? h("span", { class: "sum" }, `${count(numbers)} ranges, ${percent(share)} issued`) : null,
  ];
  const rows = [
    ...used.map((r) => [r.range, rangeRow(r, node)]),
    ...gaps.map((g) => [g[0], gapRow(g, rangeSize)]),
  ].sort((a, b) => a[0] - b[0]).map(([, row]) => row);
  const list = h("ul", { class: "ranges" }, rows);
  if (!fold) return h("div", { class: "node", "data-id": node.name }, h("h4", null, summary), list);
  const total = bar(share, !node.ok ? "down" : node.drained ? "drained" : share >= 1 ? "complete" : "used", `${node.name}: ${percent(share)} of its IDs issued`);
  return h("details", { class: "node", "data-id": node.name, open: used.some((r) => r.open) }, h("summary", null, summary, total), list);
}

// haste says whether the days that are left ask for action, with the bounds of the alerts in deploy/prometheus.
export function haste(c) {
  if (c.days_left === null || c.days_left >= 30) return null;
  return c.days_left < 3 ? "bad" : "warn";
}

// timeLeft is the days that are left in words; null when they are not known.
export function timeLeft(c) {
  if (c.days_left === null) return null;
  if (c.days_left > 3650) return "more than 10 years left";
  return c.days_left < 2 ? `${count(Math.floor(c.days_left * 24))} hours left` : `${count(Math.floor(c.days_left))} days left`;
}

function outlook(c) {
  const growth = c.growth_ids_per_day === null ? "growth not known yet" : count(c.growth_ids_per_day) + " IDs a day";
  const left = timeLeft(c);
  return h("p", { class: "outlook" },
    h("span", null, `${c.complete ? "" : "at least "}${count(c.issued_ids)} of ${count(c.owned_ids)} IDs issued`),
    h("span", null, count(c.left_ids) + " left"),
    h("span", null, growth),
    left ? (haste(c) ? badge(haste(c), left) : h("strong", null, left)) : null);
}

function collectionCard(c, ranges, status) {
  const nodes = status.dependencies.filter((d) => d.kind === "node");
  const known = new Set(nodes.map((n) => n.name));
  const byNode = Map.groupBy ? Map.groupBy(ranges, (r) => r.node) : ranges.reduce((m, r) => m.set(r.node, [...(m.get(r.node) || []), r]), new Map());
  const lost = [...byNode.keys()].filter((name) => !known.has(name)).map((name) => ({ name, ok: true, ranges: "" }));
  const [kind, text] = levels[c.state] || ["off", c.state];
  const share = c.owned_ids ? c.issued_ids / c.owned_ids : 0;
  const fold = nodes.length > manyNodes;
  const note = (n) => (byNode.get(n.name) || []).some((r) => r.open) ? 0 : n.ok ? 2 : 1;
  const all = [...nodes, ...lost];
  if (fold) all.sort((a, b) => note(a) - note(b)); // what matters first, the rest in the order of config
  return h("article", { class: "collection", "data-id": c.collection, "aria-label": `Collection ${c.collection}` },
    h("div", { class: "title" }, h("h3", null, c.collection), badge(kind, text), h("span", { class: "big" }, percent(share))),
    bar(share, "total " + kind, `${percent(share)} of all IDs issued; warning at ${status.warn_percent} %, alarm at ${status.alarm_percent} %`,
      [status.warn_percent / 100, status.alarm_percent / 100]),
    outlook(c),
    h("div", { class: "nodes" + (fold ? " scroll" : ""), tabindex: fold ? 0 : null, role: fold ? "group" : null, "aria-label": fold ? `Nodes of ${c.collection}` : null },
      all.map((n) => nodeGroup(n, byNode.get(n.name) || [], status.range_size, fold))));
}

// rangesView is everything about the ranges. why says why there is nothing newer, if so.
export function rangesView(levelsNow, status, why) {
  return [
    why ? h("p", { class: "notice" }, "How full the ranges are cannot be told at the moment: " + why) : null,
    levelsNow && Date.parse(status.at) - Date.parse(levelsNow.at) > old ? h("p", { class: "hint" }, `As of ${clock(levelsNow.at)}.`) : null,
    levelsNow ? levelsNow.collections.map((c) => collectionCard(c, levelsNow.ranges.filter((r) => r.collection === c.collection), status)) : null,
    !levelsNow && !why ? h("p", { class: "hint" }, "Asking ...") : null,
  ];
}
