// @ts-check
// Many readers, few hot keys: reads of records whose popularity falls off as a power of their rank, and a few updates.
import { check } from "k6";
import { KEY_MEMBER, number, operate, plan, seconds } from "./lib.js";
import { keyOf, ledger, readBack } from "./ledger.js";
import { begin, documentOf } from "./records.js";
import { report } from "./summary.js";

export { ledger };

const DURATION = seconds("DURATION", "2m");
const VUS = number("VUS", 50);
/** How many records there are to read. They are created first. */
const KEYS = Math.floor(number("KEYS", 10000));
/** How steep it is: 1.05 is what is seen of web caches; the higher, the hotter the first keys. */
const EXPONENT = number("EXPONENT", 1.05);
/** How much of the requests are updates, in percent. */
const UPDATES = Number(__ENV.UPDATES || 5);
if (!(UPDATES >= 0 && UPDATES <= 100)) throw new Error(`UPDATES: a percentage (got ${__ENV.UPDATES})`);

export const options = plan(
  {
    zipf: {
      executor: "constant-arrival-rate", rate: number("RATE", 500), timeUnit: "1s", duration: `${DURATION}s`,
      preAllocatedVUs: VUS, maxVUs: VUS,
    },
  },
  DURATION,
  { read_back_records: [`count==${KEYS}`] },
);

export function setup() {
  return begin(KEYS);
}

/** @param {import("./lib.js").Run} data */
export default function (data) {
  const iter = draw() - 1;
  const key = keyOf(data.run, 0, iter);
  if (Math.random() * 100 < UPDATES) {
    operate("update", "PUT", `/${key}`, JSON.stringify(documentOf(data.run, 0, iter, Date.now())), [200]);
    return;
  }
  check(operate("read", "GET", `/${key}`, null, [200]), {
    "a read has the key": (r) => r.status !== 200 || /** @type {any} */ (r.json())[KEY_MEMBER] === key,
  });
}

// Draws a rank by rejection-inversion (Hoermann and Derflinger, "Rejection-inversion to generate variates from monotone
// discrete distributions", 1996): no table, whatever the number of keys.

/** The integral of x ** -EXPONENT, but for a constant. @param {number} x */
const integral = (x) => (EXPONENT === 1 ? Math.log(x) : (x ** (1 - EXPONENT) - 1) / (1 - EXPONENT));

/** The inverse of integral. @param {number} y */
const inverse = (y) => (EXPONENT === 1 ? Math.exp(y) : (1 + y * (1 - EXPONENT)) ** (1 / (1 - EXPONENT)));

const LOWEST = integral(1.5) - 1;
const HIGHEST = integral(KEYS + 0.5);
const SURE = 2 - inverse(integral(2.5) - 2 ** -EXPONENT);

/** A rank from 1 to KEYS. */
function draw() {
  for (;;) {
    const y = HIGHEST + Math.random() * (LOWEST - HIGHEST);
    const x = inverse(y);
    const rank = Math.min(KEYS, Math.max(1, Math.round(x)));
    if (rank - x <= SURE || y >= integral(rank + 0.5) - rank ** -EXPONENT) return rank;
  }
}

/** @param {import("./lib.js").Run} data */
export function teardown(data) {
  readBack(data);
}

/** @param {any} data */
export function handleSummary(data) {
  return report("zipf", data);
}
