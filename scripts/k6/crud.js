// @ts-check
// A mix of everything at a fixed rate: by default 60 % reads, 20 % creates, 10 % updates, 5 % patches, 5 % deletes. A VU works
// on its own records only, so it knows what each of them must be, and looks.
import exec from "k6/execution";
import { check } from "k6";
import { number, operate, plan, seconds } from "./lib.js";
import { keyOf, ledger, readBack } from "./ledger.js";
import { begin, create, documentOf, remove } from "./records.js";
import { report } from "./summary.js";

export { ledger };

/** The most records that a VU keeps in mind for requests to come. */
const MOST_KNOWN = 5000;
/** @type {{[operation: string]: number}} Shares of the operations; they need not add up to 100. */
const MIX = { read: 60, create: 20, update: 10, patch: 5, delete: 5 };
for (const part of (__ENV.MIX || "").split(",")) {
  const [operation, share] = part.split("=");
  if (part && !(operation in MIX && Number(share) >= 0)) throw new Error(`MIX: like read=60,create=20,update=10 (got ${part})`);
  if (part) MIX[operation] = Number(share);
}
const DURATION = seconds("DURATION", "2m");
const VUS = number("VUS", 50);

export const options = plan(
  {
    mix: {
      executor: "constant-arrival-rate", rate: number("RATE", 200), timeUnit: "1s", duration: `${DURATION}s`,
      preAllocatedVUs: VUS, maxVUs: VUS,
    },
  },
  DURATION,
);

/** @type {{iter: number, n: number, etag: string}[]} This VU's records that are surely as it knows them. */
const known = [];

export function setup() {
  return begin();
}

/** @param {import("./lib.js").Run} data */
export default function (data) {
  const operation = known.length > 0 ? draw() : "create";
  if (operation === "create") {
    const made = create(data);
    if (made.status === 201 && known.length < MOST_KNOWN) known.push({ iter: made.iter, n: 1, etag: made.etag });
    return;
  }
  const at = Math.floor(Math.random() * known.length);
  const record = known[at];
  const rest = `/${keyOf(data.run, exec.vu.idInTest, record.iter)}`;
  if (operation === "read") {
    const answer = operate("read", "GET", rest, null, [200]);
    check(answer, {
      "a read shows the last write": (r) => r.status !== 200 || (r.headers["Etag"] === record.etag && isVersion(r, record.n)),
    });
    return;
  }
  forget(at); // until the write is acknowledged nobody knows what the record is
  if (operation === "delete") {
    remove(data, record.iter);
    return;
  }
  const headers = { "If-Match": record.etag, "Content-Type": "application/json" };
  const n = record.n + 1;
  const answer = operation === "update"
    ? operate("update", "PUT", rest, JSON.stringify(documentOf(data.run, exec.vu.idInTest, record.iter, n)), [200], { headers })
    : operate("patch", "PATCH", rest, JSON.stringify({ n }), [200], { headers });
  if (answer.status === 200) known.push({ iter: record.iter, n, etag: answer.headers["Etag"] });
}

/** Draws an operation by the shares of the mix. */
function draw() {
  let left = Math.random() * Object.values(MIX).reduce((sum, share) => sum + share, 0);
  for (const operation of Object.keys(MIX)) {
    left -= MIX[operation];
    if (left < 0) return operation;
  }
  return "read";
}

/** Takes a record out of the known ones. @param {number} at */
function forget(at) {
  known[at] = known[known.length - 1];
  known.pop();
}

/** @param {import("k6/http").Response} answer @param {number} n */
const isVersion = (answer, n) => /** @type {any} */ (answer.json()).n === n;

/** @param {import("./lib.js").Run} data */
export function teardown(data) {
  readBack(data);
}

/** @param {any} data */
export function handleSummary(data) {
  return report("crud", data);
}
