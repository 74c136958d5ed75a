// The path from a key to its row.

import { h, badge, clock, count, size } from "./dom.js";

const rows = {
  live: ["ok", "live"],
  expired: ["off", "expired", "The record has ceased to exist. Its row goes by itself."],
  fence: ["warn", "fence", "No record will ever live at this ID. The entry dangles and goes by itself."],
  absent: ["warn", "absent", "There is no row at this ID: a create or a delete is on its way, or has died. The entry dangles and goes by itself."],
  foreign: ["bad", "another key's", "The row at this ID belongs to another key."],
};

const step = (name, ...content) => h("li", { "data-id": name }, h("span", { class: "step" }, name), h("div", null, content));

function entryStep(l) {
  const told = l.entry.reason ? badge("bad", "the index does not say") : l.entry.id ? h("strong", null, "ID " + count(l.entry.id)) : badge("off", "no entry");
  const cached = l.cached_id === null ? "not in the cache of this gateway"
    : l.entry.id && l.cached_id !== l.entry.id ? `the cache of this gateway has ${count(l.cached_id)}, which is out of date` : `in the cache of this gateway too (${count(l.cached_id)})`;
  return step("Entry", told, " ", h("span", { class: "hint" }, cached), l.entry.reason ? h("p", { class: "reason" }, l.entry.reason) : null);
}

function rowStep(l) {
  const r = l.row;
  if (!r.state) return step("Row", badge("bad", "the node does not say"), h("p", { class: "reason" }, r.reason));
  const [kind, text, why] = rows[r.state] || ["off", r.state];
  return step("Row", badge(kind, text), why ? h("p", { class: "hint" }, why) : null,
    r.version ? h("dl", { class: "facts" },
      h("dt", null, "Version"), h("dd", null, count(r.version), " ", h("span", { class: "mono" }, r.etag)),
      h("dt", null, "Size"), h("dd", null, `${size(r.bytes)} (${count(r.bytes)} bytes)`),
      h("dt", null, "Created"), h("dd", null, clock(r.created_at)),
      h("dt", null, "Updated"), h("dd", null, clock(r.updated_at)),
      r.expires_at ? [h("dt", null, "Expires"), h("dd", null, clock(r.expires_at))] : null) : null);
}

// lookupView is the whole path.
export function lookupView(l) {
  return [
    h("ol", { class: "path" },
      step("Key", h("span", { class: "mono key" }, l.key), h("span", { class: "hint" }, " in " + l.collection)),
      entryStep(l),
      l.place ? [
        step("Range", `range ${l.place.range}`, h("span", { class: "hint" }, ` IDs ${count(l.place.first_id)} to ${count(l.place.last_id)}`)),
        step("Node", h("strong", null, l.place.node), h("span", { class: "hint" }, " table "), h("span", { class: "mono" }, l.place.table)),
        rowStep(l),
      ] : l.id ? step("Range", badge("warn", "no node of this config owns the ID")) : null),
    l.id === null && !l.entry.reason ? h("p", { class: "hint" }, "There is no record under this key.") : null,
    h("p", { class: "hint" }, `As seen at ${clock(Date.now())}. Documents are not shown here.`),
  ];
}
