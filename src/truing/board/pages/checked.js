// What `truing check` says of a trace besides findings: the formulas of its rows, and what was not checked.
import { h, link, plural, table } from "./dom.js";
import { address } from "./api.js";

export function checked({ formulas, notes, clean, not_checked: lacking }) {
  const codes = Object.keys(clean),
    missing = Object.entries(lacking);
  return [
    formulas.length ? list(formulas) : h("p", { class: "quiet" }, "The rows show no formula."),
    notes.map((each) => h("p", { class: "quiet wrap" }, each)),
    h(
      "details",
      {},
      h("summary", {}, plural(codes.length, "rule is", "rules are"), " clean"),
      h(
        "p",
        {},
        codes.map((code) => [rule(code), " "]),
      ),
    ),
    h(
      "details",
      {},
      h("summary", {}, plural(missing.length, "rule was", "rules were"), " not checked"),
      table(
        [["rule"], ["needs"]],
        missing.map(([code, needs]) =>
          h("tr", {}, h("td", {}, rule(code)), h("td", { class: "wrap quiet" }, needs.join(", "))),
        ),
      ),
    ),
  ];
}

function list(lines) {
  return h(
    "ul",
    {},
    lines.map((each) => h("li", { class: "wrap" }, each)),
  );
}

function rule(code) {
  return link(address("rule", { code }), code);
}
