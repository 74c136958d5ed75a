// @ts-check
// Does everything work? A few iterations of each kind of request, with every answer looked at.
import exec from "k6/execution";
import { check } from "k6";
import { KEY_MEMBER, call, number, operate, plan } from "./lib.js";
import { ledger, readBack } from "./ledger.js";
import { begin, create, documentOf, remove } from "./records.js";
import { report } from "./summary.js";

const ITERATIONS = number("ITERATIONS", 5);

export const options = plan(
  { smoke: { executor: "per-vu-iterations", vus: number("VUS", 2), iterations: ITERATIONS, maxDuration: "1m" } },
  0,
  { checks: ["rate==1"], failures: ["rate==0"], created: ["count>0"] },
);

export function setup() {
  return begin();
}

/** @param {import("./lib.js").Run} data */
export default function (data) {
  const vu = exec.vu.idInTest;
  const made = create(data);
  const rest = `/${made.key}`;

  const read = operate("read", "GET", rest, null, [200]);
  check(read, {
    "a read has the key": (r) => r.status === 200 && /** @type {any} */ (r.json())[KEY_MEMBER] === made.key,
    "a read has the ETag of the create": (r) => r.headers["Etag"] === made.etag,
  });
  check(call("HEAD", rest, null, [200], { name: "head" }), {
    "a HEAD has no body": (r) => !r.body,
  });

  const second = JSON.stringify(documentOf(data.run, vu, made.iter, 2));
  const updated = operate("update", "PUT", rest, second, [200], { headers: { "If-Match": made.etag } });
  check(updated, { "an update has a new ETag": (r) => r.headers["Etag"] !== made.etag });
  check(call("PUT", rest, second, [412], { name: "stale update", headers: { "If-Match": made.etag } }), {
    "an update of an old version is refused": (r) => r.status === 412,
  });

  const merge = { headers: { "Content-Type": "application/merge-patch+json" } };
  check(operate("patch", "PATCH", rest, '{"n":3}', [200], merge), {
    "a patch shows": (r) => r.status === 200 && /** @type {any} */ (r.json()).n === 3,
  });
  check(call("POST", "", second, [409], { name: "second create" }), {
    "a second create of a key is refused": (r) => r.status === 409 && /** @type {any} */ (r.json()).code === "record_exists",
  });
  check(call("POST", "?op=get", JSON.stringify([made.key, `${made.key}-none`]), [200], { name: "bulk read" }), {
    "a bulk read finds what is there": (r) => /** @type {any} */ (r.json()).items[0].n === 3,
    "a bulk read says what is missing": (r) => /** @type {any} */ (r.json()).missing[0] === `${made.key}-none`,
  });

  if (made.iter % 2 === 1) {
    remove(data, made.iter);
    check(call("GET", rest, null, [404], { name: "read of none" }), {
      "a deleted record is gone": (r) => r.status === 404,
      "an error is a problem document": (r) => (r.headers["Content-Type"] || "").startsWith("application/problem+json"),
    });
  }
  if (exec.vu.iterationInScenario === ITERATIONS - 1) ledger(data);
}

/** @param {import("./lib.js").Run} data */
export function teardown(data) {
  readBack(data);
}

/** @param {any} data */
export function handleSummary(data) {
  return report("smoke", data);
}
