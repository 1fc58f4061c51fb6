// What an audit of another trainer kept, judged by every rule.
import { fill, h, link, plural } from "./dom.js";
import { address, get } from "./data.js";
import { finding } from "./finding.js";

export async function audit(page, query) {
  const told = await get("audit", { audit: query.audit });
  const codes = (names) => names.map((code) => [link(address("rule", { code }), code), " "]);
  const clean = Object.keys(told.clean),
    missing = Object.entries(told.not_checked);
  fill(
    page,
    h("h1", {}, query.audit),
    told.findings.length
      ? told.findings.map((each) => finding(each, null))
      : h("div", { class: "finding clean" }, "No rule found anything."),
    h("h2", {}, plural(clean.length, "rule is", "rules are"), " clean"),
    h("p", {}, codes(clean)),
    h("h2", {}, plural(missing.length, "rule was", "rules were"), " not checked"),
    missing.map(([code, lacks]) =>
      h("p", {}, codes([code]), h("span", { class: "quiet" }, `needs ${lacks.join(", ")}`)),
    ),
  );
}
