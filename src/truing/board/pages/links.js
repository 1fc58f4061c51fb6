// Links to what may not be there: a report holds a part of the run.
import { h, link } from "./dom.js";
import { address, holds } from "./data.js";

// A sample of an update; more: what its address says besides.
export function toSample({ run, stage, update }, sample, more = {}, says = sample) {
  const at = { run, stage, update, sample };
  if (holds("sample", at)) return link(address("sample", { ...at, ...more }), says);
  return h("span", { title: "not in this report" }, says);
}
