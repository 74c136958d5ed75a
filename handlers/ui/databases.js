// The index, the issuers and the nodes.

import { h, badge, count, ms } from "./dom.js";

function pool(d) {
  if (!d.pool) return h("span", { class: "hint" }, "–");
  const { open, in_use: used, max } = d.pool;
  if (!max) return h("span", { class: "hint" }, "none yet");
  const label = `${used} of ${max} connections in use, ${open} open`;
  return h("span", { class: "pool" },
    h("svg", { class: "bar pool-bar", role: "img", "aria-label": label, preserveAspectRatio: "none", viewBox: "0 0 100 10" },
      h("rect", { class: "track", width: 100, height: 10 }),
      h("rect", { class: "opened", width: Math.min(100, (open / max) * 100).toFixed(1), height: 10 }),
      h("rect", { class: "fill", width: Math.min(100, (used / max) * 100).toFixed(1), height: 10 })),
    h("span", { class: "numbers", "aria-hidden": "true", title: "in use / open / most" }, `${used} / ${open} / ${max}`));
}

function circuits(d) {
  if (!d.circuits) return h("span", { class: "hint" }, "–");
  const open = ["reads", "writes"].filter((kind) => d.circuits[kind] === "open");
  if (!open.length) return badge("ok", "closed");
  return badge("bad", open.length > 1 ? "open" : open[0] + " open", "Such calls are refused at once until a probe is answered.");
}

function newRecords(d, levels) {
  if (d.kind !== "node") return null;
  if (d.drained) return badge("off", "drained");
  if (!d.ok || (d.circuits && d.circuits.writes === "open")) return badge("bad", "no, down");
  const open = levels ? levels.ranges.filter((r) => r.node === d.name && r.open) : [];
  if (open.length) return badge("ok", "yes");
  return h("span", { class: "hint" }, "not at present");
}

const cell = (label, ...content) => h("td", { "data-label": label }, content);

function row(d, levels) {
  return h("tr", { "data-id": d.kind + d.name, class: d.ok ? null : "failed" },
    h("th", { scope: "row" }, d.name, d.kind !== d.name ? h("span", { class: "kind" }, d.kind) : null),
    cell("Health", d.ok ? badge("ok", "up") : badge("bad", "down"), d.reason ? h("span", { class: "reason" }, d.reason) : null),
    cell("Latency", ms(d.took_ms)),
    cell("Connections", pool(d)),
    cell("Circuit", circuits(d)),
    cell("Ranges", d.ranges ? d.ranges.split(",").map((r, i) => h("span", { class: "span" }, (i ? ", " : "") + r)) : h("span", { class: "hint" }, "–")),
    cell("New records", newRecords(d, levels) || h("span", { class: "hint" }, "–")));
}

// databasesView is the table of all dependencies, those that are down first among their kind.
export function databasesView(status, levels) {
  const order = { index: 0, issuer: 1, node: 2 };
  const all = status.dependencies.map((d, at) => ({ d, at })).sort((a, b) =>
    order[a.d.kind] - order[b.d.kind] || Number(a.d.ok) - Number(b.d.ok) || a.at - b.at).map(({ d }) => d);
  const down = all.filter((d) => !d.ok).length;
  const scroll = all.length > 16;
  return [
    h("p", { class: "hint" }, `${count(all.length)} databases, ${down ? count(down) + " down" : "all up"}. Connections: in use / open / most.`),
    h("div", { class: "table" + (scroll ? " scroll" : ""), tabindex: scroll ? 0 : null, role: scroll ? "group" : null, "aria-label": scroll ? "Table of databases" : null },
      h("table", null,
        h("thead", null, h("tr", null, ["Database", "Health", "Latency", "Connections", "Circuit", "Ranges", "New records"].map((t) => h("th", { scope: "col" }, t)))),
        h("tbody", null, all.map((d) => row(d, levels))))),
  ];
}
