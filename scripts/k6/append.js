// @ts-check
// A node is appended while clients create. Start it, append a node to the gateway's config during the run, and see that nobody
// notices: no failures, no refusals, and in the end new records are on the new node.
//
// An ETag begins with the record's ID, and ADMIN_URL/admin/ranges says which node an ID is on. Without ADMIN_URL, whatever lies
// beyond LAST_ID counts as new.
import http from "k6/http";
import exec from "k6/execution";
import { sleep } from "k6";
import { Counter, Gauge } from "k6/metrics";
import { COLLECTION, credentials, number, plan, seconds } from "./lib.js";
import { ledger, readBack } from "./ledger.js";
import { begin, create } from "./records.js";
import { report } from "./summary.js";

export { ledger };

const ADMIN = (__ENV.ADMIN_URL || "").replace(/\/+$/, "");
const LAST_ID = Number(__ENV.LAST_ID || 0);
if (!ADMIN && !(LAST_ID > 0)) {
  throw new Error("ADMIN_URL: where the admin listener is, or LAST_ID: the last ID of the nodes there are (got neither)");
}
const DURATION = seconds("DURATION", "5m");
const VUS = number("VUS", 50);

/** Records whose ID is of a node that was not there when the run began. */
const onNewNodes = new Counter("records_on_new_nodes");
/** Creates that were refused because all ranges were full: the node came too late. */
const tooLate = new Counter("creates_without_room");
/** How many nodes with ranges there are. */
const nodes = new Gauge("nodes");

/** @type {Record<string, import("k6/options").Scenario>} */
const load = {
  creates: {
    executor: "constant-arrival-rate", rate: number("RATE", 200), timeUnit: "1s", duration: `${DURATION}s`,
    preAllocatedVUs: VUS, maxVUs: VUS,
  },
};
if (ADMIN) load.watch = { executor: "constant-vus", exec: "watch", vus: 1, duration: `${DURATION}s` };

export const options = plan(load, DURATION, {
  records_on_new_nodes: ["count>0"],
  creates_without_room: ["count==0"],
});

/** The ranges as the admin listener shows them; null when it does not. @returns {any[]|null} */
function ranges() {
  const tags = { name: "ranges", kind: "check" };
  const answer = http.get(`${ADMIN}/admin/ranges`, { headers: credentials(), tags, timeout: "10s" });
  if (answer.status !== 200) return null;
  const all = /** @type {any} */ (answer.json()).ranges;
  return all.filter((/** @type {any} */ r) => r.collection === COLLECTION);
}

export function setup() {
  let last = LAST_ID;
  if (ADMIN) {
    const all = ranges();
    if (!all) throw new Error(`${ADMIN}/admin/ranges does not answer`);
    last = Math.max(...all.map((r) => r.last_id));
  }
  return { ...begin(), last };
}

/** @param {import("./lib.js").Run} data */
export default function (data) {
  const made = create(data);
  if (made.status === 507) tooLate.add(1);
  // "7-1" is version 1 of the record with the ID 7.
  if (made.status === 201 && Number(made.etag.replace(/^"(\d+)-.*$/, "$1")) > data.last) onNewNodes.add(1);
}

/** Looks at the ranges once a second. @param {import("./lib.js").Run} data */
export function watch(data) {
  const all = ranges();
  if (all) {
    nodes.add(new Set(all.map((r) => r.node)).size);
    const appended = all.filter((r) => r.first_id > data.last);
    if (appended.length > 0 && !announced) {
      announced = true;
      console.log(`${appended[0].node} is there, ${Math.round(exec.scenario.progress * 100)} % through the run`);
    }
  }
  sleep(1);
}
let announced = false;

/** @param {import("./lib.js").Run} data */
export function teardown(data) {
  readBack(data);
}

/** @param {any} data */
export function handleSummary(data) {
  const found = data.metrics.records_on_new_nodes;
  const count = (found && found.values.count) || 0;
  const none = "No node was appended, or none took records before the end.";
  return report("append", data, { notes: [count > 0 ? `${count} records are on nodes that were appended.` : none] });
}
