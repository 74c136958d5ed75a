// Broken on purpose: all VUs write the same keys, as HOW says.
import exec from "k6/execution";
import { operate, plan } from "../../../scripts/k6/lib.js";
import { created, keyOf, ledger, readBack } from "../../../scripts/k6/ledger.js";
import { begin, documentOf } from "../../../scripts/k6/records.js";
import { report } from "../../../scripts/k6/summary.js";

const ITERATIONS = 5;

export const options = plan({ shared: { executor: "per-vu-iterations", vus: 3, iterations: ITERATIONS, maxDuration: "30s" } }, 0);

export const setup = () => begin();

export default function (data) {
  const iter = exec.vu.iterationInInstance;
  const record = documentOf(data.run, exec.vu.idInTest, iter, 1);
  record.key = keyOf(data.run, 1, iter); // as if every VU were the first
  const answer = __ENV.HOW === "create"
    ? operate("create", "POST", "", JSON.stringify(record), [201])
    : operate("update", "PUT", `/${record.key}`, JSON.stringify(record), [200, 201]);
  if (answer.status === 200 || answer.status === 201) created(iter);
  if (exec.vu.iterationInScenario === ITERATIONS - 1) ledger(data);
}

export const teardown = (data) => readBack(data);

export const handleSummary = (data) => report("shared_keys", data);
