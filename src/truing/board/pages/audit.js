// An audit: another trainer's steps, checked by every rule.
import { h, link, plural, setChildren, table } from "./dom.js";
import { address, get } from "./api.js";
import { finding } from "./finding.js";

export async function audit(page, query) {
  const data = await get("audit", { audit: query.audit });
  const rule = (code) => link(address("rule", { code }), code);
  const clean = Object.keys(data.clean),
    missing = Object.entries(data.not_checked);
  setChildren(
    page,
    h("h1", {}, query.audit),
    h("p", { class: "quiet" }, "Audit of another trainer’s steps."),
    data.findings.length
      ? data.findings.map((each) => [finding(each, null), occurrences(each)])
      : h("div", { class: "finding clean" }, "No findings."),
    data.facts.map((each) => [finding(each, null), occurrences(each)]),
    clean.length
      ? [
          h("h2", {}, plural(clean.length, "rule is", "rules are"), " clean"),
          h(
            "p",
            {},
            clean.map((code) => [rule(code), " "]),
          ),
        ]
      : null,
    missing.length
      ? [
          h("h2", {}, plural(missing.length, "rule was", "rules were"), " not checked"),
          table(
            [["rule"], ["needs"]],
            missing.map(([code, lacks]) =>
              h("tr", {}, h("td", {}, rule(code)), h("td", { class: "wrap quiet" }, lacks.join(", "))),
            ),
          ),
        ]
      : null,
  );
}

// The number of steps with the finding, the first of them, and why it was suppressed.
function occurrences(each) {
  const since =
    each.steps > 1 ? `In ${each.steps} steps, since ${each.first_stage} ${each.first_step}. ` : "";
  const silent = each.suppressed ? `Suppressed: ${each.suppressed}` : "";
  return since || silent ? h("p", { class: "quiet" }, since, silent) : null;
}
