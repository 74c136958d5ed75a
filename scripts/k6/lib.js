// @ts-check
// What all scripts share: settings, requests, and the options of a run. The module keeps state per VU: k6 gives each
// VU a JavaScript engine of its own.
import http from "k6/http";
import { check } from "k6";
import { Counter, Rate, Trend } from "k6/metrics";

/** @typedef {{run: string, seeds: number, [more: string]: any}} Run What setup hands to the VUs and to teardown. */
/** @typedef {import("k6/options").Scenario} Scenario */
/** @typedef {"create" | "read" | "update" | "patch" | "delete"} Operation */

/** Where the gateway serves clients, without a slash at the end. */
export const BASE = (__ENV.BASE_URL || "http://127.0.0.1:8080").replace(/\/+$/, "");
/** The collection that the records go to. */
export const COLLECTION = __ENV.COLLECTION || "records";
/** The member of a record that holds its key, as the gateway's config says. */
export const KEY_MEMBER = __ENV.KEY_MEMBER || "key";
/** How long one request may take. It is longer than the gateway's own limit, so that its answer arrives. */
const TIMEOUT = __ENV.TIMEOUT || "10s";
/** How long requests may go on after the load has ended, in seconds. */
const GRACE = seconds("GRACE", "15s");
/** The 95th percentile that a request may take under load, in milliseconds. */
export const P95_MS = number("P95_MS", 250);

/** Requests of the load that got an answer that was not expected. */
const failures = new Rate("failures");
/** Creates that were refused or not answered where that is part of the test. */
const refused = new Counter("refused");
/** @type {Record<Operation, Trend>} Time of requests that got the answer that was expected. */
const durations = {
  create: new Trend("create_duration", true),
  read: new Trend("read_duration", true),
  update: new Trend("update_duration", true),
  patch: new Trend("patch_duration", true),
  delete: new Trend("delete_duration", true),
};

/**
 * A setting from the environment that is a number above 0.
 * @param {string} name @param {number} otherwise @returns {number}
 */
export function number(name, otherwise) {
  const value = Number(__ENV[name] || otherwise);
  if (!(value > 0)) throw new Error(`${name}: a number above 0 (got ${__ENV[name]})`);
  return value;
}

/**
 * A setting from the environment that is a duration like 90s, 5m or 1h30m, in seconds.
 * @param {string} name @param {string} otherwise @returns {number}
 */
export function seconds(name, otherwise) {
  const text = __ENV[name] || otherwise;
  if (!/^(\d+(\.\d+)?[smh])+$/.test(text)) throw new Error(`${name}: a duration like 90s, 5m or 1h30m (got ${text})`);
  let sum = 0;
  for (const part of text.match(/[\d.]+[smh]/g) || []) {
    sum += parseFloat(part) * { s: 1, m: 60, h: 3600 }[/** @type {"s"|"m"|"h"} */ (part.slice(-1))];
  }
  return sum;
}

/** How many VUs the run has. Each writes a ledger. */
let vus = 0;

/**
 * The options of a run: the load, and after it one turn of every VU for its ledger. VUs are never more than planned, so that
 * each of them gets that turn.
 * @param {Record<string, Scenario>} load scenarios, each with vus or with equal preAllocatedVUs and maxVUs
 * @param {number} length seconds until the last of them ends; 0 when the VUs write their ledgers themselves
 * @param {Record<string, string[]>} thresholds more of them, or others in place of the usual ones
 * @returns {import("k6/options").Options}
 */
export function plan(load, length, thresholds = {}) {
  /** @type {Record<string, Scenario>} */
  const scenarios = {};
  for (const name of Object.keys(load)) {
    scenarios[name] = { gracefulStop: `${GRACE}s`, ...load[name] };
    const sizes = /** @type {{vus?: number, maxVUs?: number}} */ (load[name]);
    vus += sizes.maxVUs || sizes.vus || 1;
  }
  if (length > 0) {
    scenarios.ledger = {
      executor: "per-vu-iterations", exec: "ledger", vus, iterations: 1,
      startTime: `${Math.ceil(length + GRACE + 1)}s`, maxDuration: "5m",
    };
  }
  return {
    scenarios,
    thresholds: {
      failures: ["rate<0.01"],
      checks: ["rate>0.99"],
      "http_req_duration{kind:load}": [`p(95)<${P95_MS}`],
      lost_records: ["count==0"],
      mixed_up_records: ["count==0"],
      undeleted_records: ["count==0"],
      unread_records: ["count==0"],
      missing_ledgers: ["count==0"],
      read_back_records: ["count>0"],
      ...thresholds,
    },
    setupTimeout: "10m",
    teardownTimeout: "1h",
    summaryTrendStats: ["avg", "min", "med", "p(95)", "p(99)", "max"],
    // Without url, which has the keys: each would be a time series of its own.
    systemTags: ["status", "method", "name", "check", "scenario", "error_code", "expected_response"],
  };
}

/** How many VUs the plan has. */
export const plannedVUs = () => vus;

/** The path of a collection or of a record in it, from what follows the collection. @param {string} rest */
export const pathOf = (rest) => `${BASE}/v1/${COLLECTION}${rest}`;

/** The headers that say who asks; none without an API key. @returns {Record<string, string>} */
export const credentials = () => (__ENV.API_KEY ? { Authorization: `Bearer ${__ENV.API_KEY}` } : {});

/**
 * One request. An answer with another status than those expected is a failure, unless it is tolerated: then it is counted
 * as refused. A status of 0 means that there was no answer.
 * @param {string} method @param {string} rest what follows the collection @param {string|null} body JSON
 * @param {number[]} expected
 * @param {{name: string, kind?: string, headers?: Record<string, string>, tags?: Record<string, string>, tolerated?: number[]}} more
 */
export function call(method, rest, body, expected, more) {
  const tags = { name: more.name, kind: more.kind || "load", ...more.tags };
  /** @type {Record<string, string>} */
  const headers = { ...credentials(), ...more.headers };
  if (body !== null && !headers["Content-Type"]) headers["Content-Type"] = "application/json";
  const answer = http.request(method, pathOf(rest), body, {
    headers, tags, timeout: TIMEOUT, redirects: 0, responseCallback: http.expectedStatuses(...expected),
  });
  if (tags.kind === "load") {
    const tolerable = (more.tolerated || []).includes(answer.status);
    if (tolerable) refused.add(1, tags);
    else failures.add(!expected.includes(answer.status), tags);
  }
  return answer;
}

/**
 * call for one of the operations of the load: timed when it succeeds, and checked.
 * @param {Operation} operation @param {string} method @param {string} rest @param {string|null} body
 * @param {number[]} expected
 * @param {{headers?: Record<string, string>, tags?: Record<string, string>, tolerated?: number[]}} more
 */
export function operate(operation, method, rest, body, expected, more = {}) {
  const answer = call(method, rest, body, expected, { name: operation, ...more });
  const ok = expected.includes(answer.status);
  if (ok) durations[operation].add(answer.timings.duration, more.tags);
  if (!(more.tolerated || []).includes(answer.status)) check(answer, { [`${operation} succeeds`]: () => ok });
  return answer;
}
