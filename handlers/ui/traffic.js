// The requests of the last 15 minutes as charts.

import { h, count, ms } from "./dom.js";

const width = 300;
const height = 64;

// ceiling is the next round number.
function ceiling(n) {
  if (!(n > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 1.5, 2, 3, 5, 7.5, 10].map((f) => f * power).find((c) => c >= n * 0.999);
}

// line draws a series, with gaps where there is nothing.
function line(values, top) {
  let d = "";
  let pen = "M";
  values.forEach((v, i) => {
    if (v === null) {
      pen = "M";
      return;
    }
    const x = (i / (values.length - 1)) * width;
    const y = height - (Math.min(v, top) / top) * (height - 2);
    // A value between two gaps is a dot.
    d += pen + x.toFixed(1) + " " + y.toFixed(1) + (pen === "M" && (i + 1 >= values.length || values[i + 1] === null) ? "h0.5" : "");
    pen = "L";
  });
  return d;
}

function area(values, top) {
  return `M0 ${height}` + line(values.map((v) => v || 0), top).replace(/^M/, "L") + `L${width} ${height}Z`;
}

// chart draws series of one unit over each other; each has a name, values and a class.
function chart(title, now, series, unit, top, minutes) {
  const label = `${title}: ${now.map(([name, value]) => (name ? name + " " : "") + value).join(", ")} in the last minute; the scale ends at ${unit(top)}`;
  return h("figure", { class: "chart", "data-id": title },
    h("figcaption", null, h("span", { class: "title" }, title),
      h("span", { class: "nows" }, now.map(([name, value], i) =>
        h("span", { class: "now " + series[i].kind }, name ? h("span", { class: "key" }, name) : null, h("strong", null, value))))),
    h("div", { class: "plot" },
      h("span", { class: "top", "aria-hidden": "true" }, unit(top)),
      h("svg", { role: "img", "aria-label": label, preserveAspectRatio: "none", viewBox: `0 0 ${width} ${height}` },
        h("line", { class: "grid", x1: 0, x2: width, y1: 2, y2: 2 }),
        h("line", { class: "grid", x1: 0, x2: width, y1: height / 2 + 1, y2: height / 2 + 1 }),
        h("line", { class: "axis", x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }),
        series.map((s) => [
          s.area ? h("path", { class: "area " + s.kind, d: area(s.values, top) }) : null,
          h("path", { class: "line " + s.kind, d: line(s.values, top) }),
        ]))),
    h("div", { class: "times", "aria-hidden": "true" }, h("span", null, `${minutes} min ago`), h("span", null, "now")));
}

const most = (...lists) => Math.max(0, ...lists.flat().filter((v) => v !== null));

// trafficView is the charts; uptime, in seconds, says over how much of the last minute there can have been requests.
export function trafficView(past, uptime) {
  const step = past.step_seconds;
  const minutes = Math.round((past.requests.length * step) / 60);
  const born = past.requests.length - Math.floor(uptime / step); // steps before that were before the start
  const rates = past.requests.map((n, i) => (i < born ? null : n / step));
  const errors = past.requests.map((n, i) => (i < born ? null : n ? (past.errors[i] / n) * 100 : 0));
  const last = past.last_minute;
  const rate = last.requests / Math.max(step, Math.min(60, uptime));
  const failing = last.requests ? (last.errors / last.requests) * 100 : 0;
  const perSecond = (v) => (v >= 100 ? count(v) : String(+v.toFixed(v < 10 ? 2 : 1))) + " /s";
  const share = (v) => String(+v.toFixed(v < 1 ? 2 : 1)) + " %";
  return [
    chart("Rate", [["", perSecond(rate)]], [{ kind: "rate", values: rates, area: true }], perSecond, ceiling(most(rates)), minutes),
    chart("Latency", [["p50", ms(last.p50_ms)], ["p95", ms(last.p95_ms)], ["p99", ms(last.p99_ms)]], [
      { kind: "p50", values: past.p50_ms }, { kind: "p95", values: past.p95_ms }, { kind: "p99", values: past.p99_ms },
    ], (v) => (v >= 1000 ? +(v / 1000).toFixed(1) + " s" : +v.toFixed(2) + " ms"), ceiling(most(past.p99_ms)), minutes),
    chart("Errors (5xx)", [["", share(failing)]], [{ kind: "errors", values: errors, area: true }], share, Math.min(100, ceiling(most(errors))), minutes),
  ];
}
