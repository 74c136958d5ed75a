// @ts-check
// What a run leaves behind: text on the terminal, and NAME.json and NAME.html in SUMMARY_DIR. The page loads nothing.

/** @typedef {{notes?: string[], rows?: string[][], facts?: Record<string, any>}} More rows is a table, its head first. */

const DIR = (__ENV.SUMMARY_DIR || ".").replace(/\/+$/, "");

/**
 * What handleSummary returns.
 * @param {string} name the name of the script @param {any} data what k6 hands to handleSummary
 * @param {More} more what the script has to say about its run
 * @returns {Record<string, string>}
 */
export function report(name, data, more = {}) {
  const thresholds = thresholdsOf(data);
  const passed = thresholds.every((t) => t.ok);
  const metrics = metricsOf(data);
  const facts = { script: name, passed, run: data.setup_data && data.setup_data.run, ...more.facts };
  /** @type {{title: string, rows: string[][]}[]} */
  const tables = [];
  if (more.rows) tables.push({ title: "Result", rows: more.rows });
  const judged = thresholds.map((t) => [t.ok ? "ok" : "FAILED", t.metric, t.expression]);
  tables.push({ title: "Thresholds", rows: [["", "metric", "threshold"], ...judged] });
  tables.push({ title: "Metrics", rows: [["metric", "values"], ...metrics] });
  const notes = [`${name}: ${passed ? "passed" : "FAILED"}`, ...(more.notes || [])];
  const whole = { ...facts, notes: more.notes || [], rows: more.rows || [], thresholds, metrics: data.metrics };
  return {
    stdout: textOf(notes, tables),
    [`${DIR}/${name}.json`]: `${JSON.stringify(whole, null, 2)}\n`,
    [`${DIR}/${name}.html`]: pageOf(name, passed, notes, tables),
  };
}

/** Thresholds that hold always are there to make k6 show a metric by tag, and say nothing. @param {string} expression */
const saysNothing = (expression) => expression.endsWith(">=0");

/** @param {any} data @returns {{metric: string, expression: string, ok: boolean}[]} */
function thresholdsOf(data) {
  const all = [];
  for (const metric of Object.keys(data.metrics).sort()) {
    const thresholds = data.metrics[metric].thresholds || {};
    for (const expression of Object.keys(thresholds)) {
      if (!saysNothing(expression)) all.push({ metric, expression, ok: thresholds[expression].ok });
    }
  }
  return all;
}

/** One line per metric. @param {any} data @returns {string[][]} */
function metricsOf(data) {
  const shown = Object.keys(data.metrics).filter((metric) => {
    const expressions = Object.keys(data.metrics[metric].thresholds || {});
    return expressions.length === 0 || !expressions.every(saysNothing);
  });
  return shown.sort().map((metric) => {
    const { values, contains } = data.metrics[metric];
    const unit = contains === "time" ? " ms" : "";
    const parts = Object.keys(values).map((value) => `${value} ${round(values[value])}${unit}`);
    return [metric, parts.join(", ")];
  });
}

/** @param {any} value */
function round(value) {
  return typeof value === "number" && !Number.isInteger(value) ? value.toFixed(Math.abs(value) < 10 ? 3 : 1) : String(value);
}

/** @param {string[]} notes @param {{title: string, rows: string[][]}[]} tables */
function textOf(notes, tables) {
  let text = `\n${notes.join("\n")}\n`;
  for (const { title, rows } of tables) {
    const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
    text += `\n${title}\n`;
    for (const row of rows) text += `  ${row.map((cell, column) => cell.padEnd(widths[column])).join("  ").trimEnd()}\n`;
  }
  return text;
}

/** @param {string} text */
const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");

/** @param {string} name @param {boolean} passed @param {string[]} notes @param {{title: string, rows: string[][]}[]} tables */
function pageOf(name, passed, notes, tables) {
  const body = tables.map(({ title, rows }) => {
    const [head, ...rest] = rows;
    const th = head.map((cell) => `<th>${escaped(cell)}</th>`).join("");
    /** @param {string} cell */
    const td = (cell) => `<td${cell === "FAILED" || cell === "no" ? ' class="bad"' : ""}>${escaped(cell)}</td>`;
    const tr = rest.map((row) => `<tr>${row.map(td).join("")}</tr>`);
    return `<h2>${escaped(title)}</h2>\n<table>\n<thead><tr>${th}</tr></thead>\n<tbody>\n${tr.join("\n")}\n</tbody>\n</table>`;
  });
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>${escaped(name)}: ${passed ? "passed" : "failed"}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222; }
h1 { color: ${passed ? "#176b2c" : "#a31515"}; }
table { border-collapse: collapse; }
th, td { border-bottom: 1px solid #ddd; padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }
.bad { color: #a31515; font-weight: bold; }
</style>
</head>
<body>
<h1>${escaped(notes[0])}</h1>
${notes.slice(1).map((note) => `<p>${escaped(note)}</p>`).join("\n")}
${body.join("\n")}
</body>
</html>
`;
}
