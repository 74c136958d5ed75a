// @ts-check
// The records of a run: made, deleted and noted in the ledger.
import http from "k6/http";
import exec from "k6/execution";
import { fail } from "k6";
import { Counter } from "k6/metrics";
import { BASE, COLLECTION, KEY_MEMBER, call, number, operate } from "./lib.js";
import { created, deleted, doubt, keyOf, ledgerKeyOf, writeLedger } from "./ledger.js";

/** @typedef {import("./lib.js").Run} Run */

/** About how long a record is, in bytes. */
const DOC_BYTES = number("DOC_BYTES", 300);
/** Creates that were acknowledged with 201. */
const acknowledged = new Counter("created");

/**
 * Looks at the gateway before the load, names the run, and creates records that all VUs may read, those of "VU 0".
 * @param {number} seeds how many
 * @returns {Run}
 */
export function begin(seeds = 0) {
  const ready = http.get(`${BASE}/readyz`, { tags: { name: "readyz", kind: "check" } });
  if (ready.status !== 200) fail(`${BASE}/readyz: ${ready.status || ready.error} ${ready.body || ""}`);
  const run = __ENV.RUN_ID || `${Date.now().toString(36)}${Math.floor(Math.random() * 36 ** 4).toString(36)}`;
  if (!/^[A-Za-z0-9_]{1,64}$/.test(run)) fail(`RUN_ID: up to 64 letters, digits or _ (got ${run})`);
  const used = call("GET", `?key=${ledgerKeyOf(run, 1)}`, null, [200], { name: "begin", kind: "check" });
  if (used.status !== 200) fail(`collection ${COLLECTION}: ${used.status || used.error} ${used.body || ""}`);
  if (/** @type {any} */ (used.json()).items.length > 0) fail(`RUN_ID ${run} was used before: take another, keys must be new`);
  for (let from = 0; from < seeds; from += 500) {
    const batch = [];
    for (let i = from; i < Math.min(seeds, from + 500); i++) batch.push(documentOf(run, 0, i, 1));
    const answer = call("POST", "", JSON.stringify(batch), [200], { name: "seed", kind: "check" });
    const results = answer.status === 200 ? /** @type {any} */ (answer.json()).results : [];
    if (results.filter((/** @type {any} */ r) => r.status === 201).length < batch.length) {
      fail(`records to read cannot be created: ${answer.status || answer.error} ${String(answer.body).slice(0, 500)}`);
    }
  }
  if (seeds > 0 && !writeLedger(run, 0, [[0, seeds - 1]])) fail("the ledger of the records to read cannot be written");
  return { run, seeds };
}

/**
 * A record as JSON, of about DOC_BYTES. vu and iter say whose it is: the read-back holds them against the key.
 * @param {string} run @param {number} vu @param {number} iter @param {number} n counts its versions
 */
export function documentOf(run, vu, iter, n) {
  const record = { [KEY_MEMBER]: keyOf(run, vu, iter), run, vu, iter, n, pad: "" };
  const length = JSON.stringify(record).length;
  record.pad = "x".repeat(Math.max(0, DOC_BYTES - length));
  return record;
}

/**
 * Creates this VU's record of the iteration and notes it in the ledger when it is acknowledged.
 * @param {Run} data
 * @param {{tags?: Record<string, string>, tolerated?: number[]}} more
 * @returns {{iter: number, key: string, etag: string, status: number}}
 */
export function create(data, more = {}) {
  const vu = exec.vu.idInTest;
  const iter = exec.vu.iterationInInstance;
  const body = JSON.stringify(documentOf(data.run, vu, iter, 1));
  const answer = operate("create", "POST", "", body, [201], more);
  if (answer.status === 201) {
    created(iter);
    acknowledged.add(1, more.tags);
  }
  return { iter, key: keyOf(data.run, vu, iter), etag: answer.headers["Etag"] || "", status: answer.status };
}

/**
 * Deletes a record of this VU. Without a clear answer nothing is expected of it from then on.
 * @param {Run} data @param {number} iter the iteration that created it
 */
export function remove(data, iter) {
  const answer = operate("delete", "DELETE", `/${keyOf(data.run, exec.vu.idInTest, iter)}`, null, [204]);
  if (answer.status === 204) deleted(iter);
  else doubt(iter);
}
