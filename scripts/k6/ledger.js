// @ts-check
// Which creates were acknowledged, and the proof at the end that each of them can be read. A key follows from the run, the VU
// and the iteration, so no two VUs ever share one, and a ledger is a few ranges of iterations. VUs share no memory: each
// stores its ledger in the gateway when the load is over, and teardown reads the ledgers and then every record in them.
import exec from "k6/execution";
import { sleep } from "k6";
import { Counter } from "k6/metrics";
import { KEY_MEMBER, call, plannedVUs } from "./lib.js";

/** @typedef {number[][]} Ranges Iterations as [first, last] pairs. */

/** How many records one request of the read-back asks for. */
const BATCH = 500;
/** How often the read-back and the ledgers try, a second apart. */
const TRIES = 30;

/** Records that were acknowledged and have been read back. */
const readBackRecords = new Counter("read_back_records");
/** Records that were acknowledged and are not there. */
const lostRecords = new Counter("lost_records");
/** Records that are another's than their key says. */
const mixedUpRecords = new Counter("mixed_up_records");
/** Records whose delete was acknowledged and that are there. */
const undeletedRecords = new Counter("undeleted_records");
/** Records that the gateway would not say anything about. */
const unreadRecords = new Counter("unread_records");
/** VUs that left no ledger: nobody knows what they were told. */
const missingLedgers = new Counter("missing_ledgers");

/**
 * The key of what a VU creates in an iteration. iter counts a VU's iterations over all scenarios of a run.
 * @param {string} run @param {number} vu @param {number} iter
 */
export const keyOf = (run, vu, iter) => `k6-${run}-${vu}-${iter}`;

/** The key of the ledger of a VU. @param {string} run @param {number} vu */
export const ledgerKeyOf = (run, vu) => `k6-${run}-ledger-${vu}`;

/** @type {{created: Ranges, deleted: Ranges, doubtful: Ranges}} This VU's ledger. */
const mine = { created: [], deleted: [], doubtful: [] };

/** @param {Ranges} ranges @param {number} iter */
function note(ranges, iter) {
  const last = ranges[ranges.length - 1];
  if (last && last[1] + 1 === iter) last[1] = iter;
  else ranges.push([iter, iter]);
}

/** Notes a create that was acknowledged. @param {number} iter */
export const created = (iter) => note(mine.created, iter);

/** Notes a delete that was acknowledged. @param {number} iter */
export const deleted = (iter) => note(mine.deleted, iter);

/** Notes a delete that may or may not have taken effect. @param {number} iter */
export const doubt = (iter) => note(mine.doubtful, iter);

/**
 * Stores the ledger of this VU, or ranges as that of another. Says whether it is stored.
 * @param {string} run @param {number} vu @param {Ranges} [ranges]
 */
export function writeLedger(run, vu, ranges) {
  const content = ranges ? { created: ranges, deleted: [], doubtful: [] } : mine;
  const key = ledgerKeyOf(run, vu);
  const body = JSON.stringify({ [KEY_MEMBER]: key, run, vu, ...content });
  return insist(() => {
    const answer = call("PUT", `/${key}`, body, [200, 201], { name: "ledger", kind: "check" });
    return answer.status === 200 || answer.status === 201;
  });
}

/** The turn of every VU after the load. @param {import("./lib.js").Run} data */
export function ledger(data) {
  writeLedger(data.run, exec.vu.idInTest);
}

/** Tries until it succeeds, for a while. @param {() => boolean} attempt */
function insist(attempt) {
  for (let i = 0; i < TRIES; i++) {
    if (attempt()) return true;
    sleep(1);
  }
  return false;
}

/**
 * The records under keys, by key; null when the gateway does not say.
 * @param {string[]} keys @returns {Record<string, any>|null}
 */
function recordsOf(keys) {
  /** @type {Record<string, any>} */
  const found = {};
  const ok = insist(() => {
    const answer = call("POST", "?op=get", JSON.stringify(keys), [200], { name: "read back", kind: "check" });
    if (answer.status !== 200) return false;
    for (const item of /** @type {any} */ (answer.json()).items) found[item[KEY_MEMBER]] = item;
    return true;
  });
  return ok ? found : null;
}

/** The last step of every script: reads each record that was acknowledged. @param {import("./lib.js").Run} data */
export function readBack(data) {
  const first = data.seeds > 0 ? 0 : 1;
  for (let from = first; from <= plannedVUs(); from += BATCH) {
    const owners = [];
    for (let vu = from; vu <= Math.min(plannedVUs(), from + BATCH - 1); vu++) owners.push(vu);
    const ledgers = recordsOf(owners.map((vu) => ledgerKeyOf(data.run, vu))) || {};
    for (const vu of owners) {
      const content = ledgers[ledgerKeyOf(data.run, vu)];
      if (content) readBackOf(data.run, vu, content);
      else missingLedgers.add(1);
    }
  }
}

/** @param {string} run @param {number} vu @param {{created: Ranges, deleted: Ranges, doubtful: Ranges}} content */
function readBackOf(run, vu, content) {
  const gone = membersOf(content.deleted);
  const doubtful = membersOf(content.doubtful);
  for (const [first, last] of content.created) {
    for (let from = first; from <= last; from += BATCH) {
      const iters = [];
      for (let i = from; i <= Math.min(last, from + BATCH - 1); i++) iters.push(i);
      const found = recordsOf(iters.map((iter) => keyOf(run, vu, iter)));
      if (!found) unreadRecords.add(iters.length);
      else for (const iter of iters) judge(run, vu, iter, found[keyOf(run, vu, iter)], gone.has(iter), doubtful.has(iter));
    }
  }
}

/**
 * @param {string} run @param {number} vu @param {number} iter @param {any} record undefined when there is none
 * @param {boolean} gone its delete was acknowledged @param {boolean} doubtful its delete had no clear answer
 */
function judge(run, vu, iter, record, gone, doubtful) {
  if (record && (record.run !== run || record.vu !== vu || record.iter !== iter)) {
    console.error(`${keyOf(run, vu, iter)} holds another record: ${JSON.stringify(record)}`);
    mixedUpRecords.add(1);
  } else if (record && gone) {
    console.error(`${keyOf(run, vu, iter)} is there although its delete was acknowledged`);
    undeletedRecords.add(1);
  } else if (record) {
    readBackRecords.add(1);
  } else if (!gone && !doubtful) {
    console.error(`${keyOf(run, vu, iter)} is not there although its create was acknowledged`);
    lostRecords.add(1);
  }
}

/** @param {Ranges} ranges @returns {Set<number>} */
function membersOf(ranges) {
  const members = new Set();
  for (const [first, last] of ranges) for (let i = first; i <= last; i++) members.add(i);
  return members;
}
