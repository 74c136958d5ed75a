// Loses a record that was acknowledged, or the ledger of a VU, as LOSE says, for the read-back to find out.
import exec from "k6/execution";
import { call, plan } from "../../../scripts/k6/lib.js";
import { keyOf, ledger, ledgerKeyOf, readBack } from "../../../scripts/k6/ledger.js";
import { begin, create } from "../../../scripts/k6/records.js";
import { report } from "../../../scripts/k6/summary.js";

export { ledger };

export const options = plan({ losing: { executor: "constant-vus", vus: 2, duration: "1s" } }, 1);

export const setup = () => begin();

export default function (data) {
  create(data);
}

export function teardown(data) {
  const key = __ENV.LOSE === "lost" ? keyOf(data.run, 2, 0) : ledgerKeyOf(data.run, 2);
  call("DELETE", `/${key}`, null, [204], { name: "lose", kind: "check" });
  readBack(data);
}

export const handleSummary = (data) => report("losing", data);
