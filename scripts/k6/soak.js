// @ts-check
// Does it stay as fast as it was? A moderate rate for hours: create, read, and delete what is old, so that the number of records
// stays the same. The summary compares the first quarter of the time with the last.
import exec from "k6/execution";
import { P95_MS, number, operate, plan, seconds } from "./lib.js";
import { keyOf, ledger, readBack } from "./ledger.js";
import { begin, create, remove } from "./records.js";
import { report } from "./summary.js";

export { ledger };

const DURATION = seconds("DURATION", "4h");
const VUS = number("VUS", 50);
/** How many records a VU keeps. */
const KEEP = number("KEEP", 1000);

export const options = plan(
  {
    soak: {
      executor: "constant-arrival-rate", rate: number("RATE", 100), timeUnit: "1s", duration: `${DURATION}s`,
      preAllocatedVUs: VUS, maxVUs: VUS,
    },
  },
  DURATION,
  {
    failures: ["rate<0.001"],
    dropped_iterations: ["count==0"],
    "create_duration{quarter:1}": [`p(95)<${P95_MS}`],
    "create_duration{quarter:4}": [`p(95)<${P95_MS}`],
    "read_duration{quarter:1}": [`p(95)<${P95_MS}`],
    "read_duration{quarter:4}": [`p(95)<${P95_MS}`],
  },
);

/** @type {number[]} The iterations whose records this VU has, the oldest first. */
const kept = [];

export function setup() {
  return begin();
}

/** @param {import("./lib.js").Run} data */
export default function (data) {
  const quarter = String(Math.min(4, Math.floor(exec.scenario.progress * 4) + 1));
  const tags = { quarter };
  const made = create(data, { tags });
  if (made.status === 201) kept.push(made.iter);
  if (kept.length === 0) return;
  const iter = kept[Math.floor(Math.random() * kept.length)];
  operate("read", "GET", `/${keyOf(data.run, exec.vu.idInTest, iter)}`, null, [200], { tags });
  if (kept.length > KEEP) remove(data, /** @type {number} */ (kept.shift()));
}

/** @param {import("./lib.js").Run} data */
export function teardown(data) {
  readBack(data);
}

/** @param {any} data */
export function handleSummary(data) {
  const rows = [["request", "first quarter p95 ms", "last quarter p95 ms"]];
  for (const operation of ["create", "read"]) {
    /** @param {number} quarter */
    const p95 = (quarter) => {
      const found = data.metrics[`${operation}_duration{quarter:${quarter}}`];
      return ((found && found.values["p(95)"]) || 0).toFixed(1);
    };
    rows.push([operation, p95(1), p95(4)]);
  }
  return report("soak", data, { rows });
}
