// A finding of the doctor: claim, location, excerpt and background.
import { h, link, plural, sampleLink, verdictBadge } from "./dom.js";
import { address } from "./api.js";

export function findings(data) {
  return [
    ...findingCards(data),
    startupFindings(data.noticed),
    ...data.facts.map((each) => finding(each, data.run)),
  ];
}

// Problems of tasks and rewards that were found before training, not by a rule.
function startupFindings(texts) {
  if (!texts.length) return "";
  return h(
    "section",
    { class: "finding SUSPECT" },
    h("b", {}, "Found before training"),
    h(
      "ul",
      {},
      texts.map((each) => h("li", { class: "wrap" }, each)),
    ),
  );
}

function findingCards(data) {
  if (data.findings.length) return data.findings.map((each) => finding(each, data.run));
  if (!data.steps) return [h("div", { class: "finding" }, "No step yet.")];
  const judged = `${plural(data.steps, "step")} checked, no findings.`;
  return [h("div", { class: data.noticed.length ? "finding" : "finding clean" }, judged)];
}

// A finding as a card. name: of its run; null if its steps have no pages.
export function finding(each, name) {
  const rows = [
    ["got", each.got],
    ["expected", each.expected],
    ["fix", each.remedy],
    ["other samples", otherSamples(each, name)],
    ["incidents", (each.incidents || []).join("\n")],
  ].filter(([, text]) => text);
  return h(
    "section",
    { class: `finding ${each.verdict}` },
    h(
      "div",
      { class: "row" },
      verdictBadge(
        each.verdict,
        each.verdict + (each.log10_odds ? ` 10^${Math.round(each.log10_odds)} : 1` : ""),
      ),
      h("b", {}, link(address("rule", { code: each.code }), `${each.code} ${each.name}`)),
      h("span", {}, "at ", findingLink(each, name)),
    ),
    h("p", { class: "wrap" }, each.what),
    each.undone ? h("p", { class: "quiet" }, each.undone) : null,
    each.excerpt && each.excerpt.length
      ? h(
          "div",
          { class: "excerpt mono" },
          each.excerpt.map(([text, marked]) => h(marked ? "mark" : "span", {}, text)),
        )
      : null,
    h(
      "dl",
      {},
      rows.map(([label, text]) => [h("dt", {}, label), h("dd", {}, text)]),
    ),
    detailsBox("why training shows no error", each.why),
    detailsBox("healthy look-alikes", each.healthy),
  );
}

function detailsBox(label, text) {
  return text ? h("details", {}, h("summary", {}, label), h("p", { class: "wrap" }, text)) : null;
}

// Its location as a link; a step that was undone has no page.
function findingLink(each, name) {
  const at = { run: name, stage: each.stage, step: each.step };
  const token = each.end > each.start ? each.start : "";
  const sample = each.sample_id ? `, sample ${each.sample_id}${token === "" ? "" : `, token ${token}`}` : "";
  const label = `${each.stage} ${each.step}${sample}`;
  if (name === null || each.undone) return label;
  return each.sample_id
    ? sampleLink(at, each.sample_id, { token }, label)
    : link(address("step", at), label);
}

// Samples that are listed before the button for more.
const FIRST = 6;

// Other samples that it marks.
function otherSamples(each, name) {
  const others = (each.samples || []).filter(({ sample }) => sample !== each.sample_id);
  if (name === null || each.undone || !others.length) return null;
  const at = { run: name, stage: each.stage, step: each.step };
  const to = ({ sample, token }) => [sampleLink(at, sample, { token }), " "];
  const more = others.slice(FIRST);
  const rest = each.samples_count - each.samples.length;
  return [
    others.slice(0, FIRST).map(to),
    more.length ? h("details", {}, h("summary", {}, `${more.length} more`), more.map(to)) : null,
    rest ? h("span", { class: "quiet" }, ` and ${rest} others`) : null,
  ];
}
