// What an audit of another trainer kept, judged by every rule.
import { fill, h, link, plural, table } from "./dom.js";
import { address, get } from "./data.js";
import { finding } from "./finding.js";

export async function audit(page, query) {
  const told = await get("audit", { audit: query.audit });
  const rule = (code) => link(address("rule", { code }), code);
  const clean = Object.keys(told.clean),
    missing = Object.entries(told.not_checked);
  fill(
    page,
    h("h1", {}, query.audit),
    h("p", { class: "quiet" }, "An audit: updates of another trainer, judged by every rule."),
    told.findings.length
      ? told.findings.map((each) => [finding(each, null), again(each)])
      : h("div", { class: "finding clean" }, "No rule found anything."),
    told.facts.map((each) => [finding(each, null), again(each)]),
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

// In how many updates a rule found something, since when, and why it was told to be silent.
function again(each) {
  const since =
    each.updates > 1 ? `In ${each.updates} updates, since ${each.first_stage} ${each.first_update}. ` : "";
  const silent = each.suppressed ? `Suppressed: ${each.suppressed}` : "";
  return since || silent ? h("p", { class: "quiet" }, since, silent) : null;
}
