// A finding of the doctor: what it says, where, the text around its place, and what else helps.
import { h, link, plural, verdict } from "./dom.js";
import { address } from "./data.js";
import { toSample } from "./links.js";

export function findings(told) {
  return [...found(told), noticed(told.noticed), ...told.facts.map((each) => finding(each, told.run))];
}

// What was found before anything was trained: of tasks and rewards, by no rule.
function noticed(texts) {
  if (!texts.length) return "";
  return h(
    "section",
    { class: "finding SUSPECT" },
    h("b", {}, "Noticed before training"),
    h(
      "ul",
      {},
      texts.map((each) => h("li", { class: "wrap" }, each)),
    ),
  );
}

function found(told) {
  if (!told.findings.length) {
    const judged = told.updates
      ? `The doctor looked at ${plural(told.updates, "update")} and no rule found anything.`
      : "No update yet.";
    return [h("div", { class: "finding clean" }, judged)];
  }
  return told.findings.map((each) => finding(each, told.run));
}

// A finding as a card. name: of its run; null where its updates cannot be looked at.
export function finding(each, name) {
  const rows = [
    ["got", each.got],
    ["expected", each.expected],
    ["fix", each.remedy],
    ["also in", among(each, name)],
    ["then also", (each.incidents || []).join("\n")],
  ].filter(([, text]) => text);
  return h(
    "section",
    { class: `finding ${each.verdict}` },
    h(
      "div",
      { class: "row" },
      verdict(each.verdict, each.verdict + (each.log10_odds ? ` 10^${Math.round(each.log10_odds)} : 1` : "")),
      h("b", {}, link(address("rule", { code: each.code }), `${each.code} ${each.name}`)),
      h("span", {}, "at ", place(each, name)),
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
    folded("why it is silent", each.why),
    folded("what looks like it, and is healthy", each.healthy),
  );
}

function folded(says, text) {
  return text ? h("details", {}, h("summary", {}, says), h("p", { class: "wrap" }, text)) : null;
}

// Where it is, as a link; an update that was undone is no longer there to be looked at.
function place(each, name) {
  const update = { run: name, stage: each.stage, update: each.update };
  const token = each.end > each.start ? each.start : "";
  const sample = each.sample_id ? `, sample ${each.sample_id}${token === "" ? "" : `, token ${token}`}` : "";
  const says = `${each.stage} ${each.update}${sample}`;
  if (name === null || each.undone) return says;
  return each.sample_id
    ? toSample(update, each.sample_id, { token }, says)
    : link(address("update", update), says);
}

// Samples that are listed before somebody asks for all.
const FIRST = 6;

// Other samples that it means.
function among(each, name) {
  const others = (each.samples || []).filter(({ sample }) => sample !== each.sample_id);
  if (name === null || each.undone || !others.length) return null;
  const update = { run: name, stage: each.stage, update: each.update };
  const to = ({ sample, token }) => [toSample(update, sample, { token }), " "];
  const more = others.slice(FIRST);
  const rest = each.samples_count - each.samples.length;
  return [
    others.slice(0, FIRST).map(to),
    more.length ? h("details", {}, h("summary", {}, `${more.length} more`), more.map(to)) : null,
    rest ? h("span", { class: "quiet" }, ` and ${rest} others`) : null,
  ];
}
