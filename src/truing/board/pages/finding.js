// A finding of the doctor: what it says, where, and the text around its place.
import { h, link, plural, verdict } from "./dom.js";
import { address } from "./data.js";

export function findings(told) {
  if (!told.findings.length) {
    const judged = told.updates
      ? `The doctor looked at ${plural(told.updates, "update")} and no rule found anything.`
      : "No update yet.";
    return h("div", { class: "finding clean" }, judged);
  }
  return told.findings.map((each) => finding(each, told.run));
}

export function finding(each, name) {
  const at =
    name === null
      ? `${each.stage} ${each.update}${each.sample_id ? `, sample ${each.sample_id}` : ""}`
      : each.sample_id
        ? link(
            address("sample", {
              run: name,
              stage: each.stage,
              update: each.update,
              sample: each.sample_id,
              token: each.end > each.start ? each.start : "",
            }),
            `${each.stage} ${each.update}, sample ${each.sample_id}${each.end > each.start ? `, token ${each.start}` : ""}`,
          )
        : link(
            address("update", { run: name, stage: each.stage, update: each.update }),
            `${each.stage} ${each.update}`,
          );
  const rows = [
    ["got", each.got],
    ["expected", each.expected],
    ["fix", each.remedy],
    ["why silent", each.why],
  ].filter(([, text]) => text);
  return h(
    "section",
    { class: `finding ${each.verdict}` },
    h(
      "div",
      { class: "row" },
      verdict(each.verdict, each.verdict + (each.log10_odds ? ` 10^${Math.round(each.log10_odds)} : 1` : "")),
      h("b", {}, link(address("rule", { code: each.code }), `${each.code} ${each.name}`)),
      h("span", {}, "at ", at),
    ),
    h("p", { class: "wrap" }, each.what),
    each.undone ? h("p", { class: "quiet" }, each.undone) : null,
    each.excerpt && each.excerpt.length
      ? h(
          "div",
          { class: "excerpt mono" },
          each.excerpt.map(([text, meant]) => h(meant ? "mark" : "span", {}, text)),
        )
      : null,
    h(
      "dl",
      {},
      rows.map(([label, text]) => [h("dt", {}, label), h("dd", {}, text)]),
    ),
  );
}
