// @ts-check
// How many creates per second are too many? The rate goes up in steps, past what the gateway can do. The summary has a line
// per step and names the knee: the last step that was kept up with.
import exec from "k6/execution";
import { P95_MS, number, plan, seconds } from "./lib.js";
import { ledger, readBack } from "./ledger.js";
import { begin, create } from "./records.js";
import { report } from "./summary.js";

export { ledger };

const START_RATE = number("START_RATE", 250);
const STEP_RATE = number("STEP_RATE", 250);
const STEPS = number("STEPS", 12);
const STEP_SECONDS = seconds("STEP", "30s");
const VUS = number("VUS", 256);
/** A step is kept up with when so much of its rate is acknowledged. */
const KEPT_UP = 0.95;
/** What a gateway or a proxy says when it is too much, 0 being no answer. All else is a failure. */
const TOO_MUCH = [0, 429, 502, 503, 504];

/** The rate of a step, counted from 0, in creates per second. @param {number} step */
const rateOf = (step) => START_RATE + step * STEP_RATE;

/** @type {{target: number, duration: string}[]} */
const stages = [];
/** @type {Record<string, string[]>} k6 shows a metric by tag only where a threshold asks for it. These hold always. */
const perStep = {};
for (let step = 0; step < STEPS; step++) {
  // A stage of no length sets the rate at once; the next one keeps it.
  stages.push({ target: rateOf(step), duration: "0s" }, { target: rateOf(step), duration: `${STEP_SECONDS}s` });
  perStep[`created{step:${step}}`] = ["count>=0"];
  perStep[`refused{step:${step}}`] = ["count>=0"];
  perStep[`create_duration{step:${step}}`] = ["p(95)>=0"];
}

export const options = plan(
  {
    ramp: {
      executor: "ramping-arrival-rate", startRate: START_RATE, timeUnit: "1s", stages,
      preAllocatedVUs: VUS, maxVUs: VUS,
    },
  },
  STEPS * STEP_SECONDS,
  // Slow is what it looks for. Wrong is wrong at any rate.
  { ...perStep, "http_req_duration{kind:load}": ["p(95)>=0"] },
);

export function setup() {
  return begin();
}

/** @param {import("./lib.js").Run} data */
export default function (data) {
  const step = Math.floor((Date.now() - exec.scenario.startTime) / (STEP_SECONDS * 1000));
  create(data, { tags: { step: String(Math.min(step, STEPS - 1)) }, tolerated: TOO_MUCH });
}

/** @param {import("./lib.js").Run} data */
export function teardown(data) {
  readBack(data);
}

/**
 * One line per step, and the rate of the knee; 0 when not even the first step was kept up with.
 * @param {any} data
 */
function steps(data) {
  const rows = [["step", "wanted /s", "created /s", "refused", "p95 ms", "kept up"]];
  let knee = 0;
  let above = false;
  for (let step = 0; step < STEPS; step++) {
    /** @param {string} metric @param {string} value */
    const of = (metric, value) => {
      const found = data.metrics[`${metric}{step:${step}}`];
      return (found && found.values[value]) || 0;
    };
    const rate = of("created", "count") / STEP_SECONDS;
    const p95 = of("create_duration", "p(95)");
    const ok = rate >= KEPT_UP * rateOf(step) && p95 <= P95_MS;
    above = above || !ok;
    if (!above) knee = rateOf(step);
    rows.push([
      String(step + 1), String(rateOf(step)), rate.toFixed(0), String(of("refused", "count")), p95.toFixed(1), ok ? "yes" : "no",
    ]);
  }
  return { rows, knee, above };
}

/** @param {any} data */
export function handleSummary(data) {
  const { rows, knee, above } = steps(data);
  const note = above
    ? `The knee is at ${knee} creates/s: ${KEPT_UP * 100} % acknowledged, p95 within ${P95_MS} ms (P95_MS).`
    : `No knee up to ${knee} creates/s: set STEPS, STEP_RATE or VUS higher.`;
  return report("ramp", data, { notes: [note], rows, facts: { knee_creates_per_second: knee, knee_reached: above } });
}
