// One step: its samples, its ratios, and every metric with its definition.
import { count, duration, findingCodes, h, link } from "./dom.js";
import { number, plural, sampleLink, setChildren, table } from "./dom.js";
import { address, get, hasAnswer } from "./api.js";
import { finding } from "./finding.js";
import { histogram } from "./ratio_histogram.js";
import { TokenView } from "./tokens.js";

export async function step(page, query, context) {
  const question = { run: query.run, stage: query.stage, step: query.step };
  let trouble = null;
  const data = await get("step", question).catch((error) => {
    trouble = h("div", { class: "error" }, error.message);
    return get("numbers", question);
  });
  const list = h("div", {}),
    area = h("div", {});
  setChildren(
    page,
    h("p", { class: "crumbs" }, link(address("run", { run: query.run }), query.run)),
    h(
      "div",
      { class: "row" },
      h("h1", {}, `${data.stage} ${data.step}`),
      h(
        "span",
        { class: "quiet" },
        `${data.at} of ${data.of} steps`,
        data.label ? ` · loss: ${data.label.replaceAll("_", " ")}` : "",
      ),
      h("span", { class: "grow" }),
      previousNext(query, data),
    ),
    trouble,
    data.findings.map((each) => finding({ ...each, incidents: [] }, query.run)),
    data.incidents.map((each) => h("p", { class: "wrap quiet" }, each)),
    data.ratios ? ratios(data) : null,
    h("h2", {}, "Samples"),
    list,
    area,
    h("h2", {}, "Metrics"),
    metricsTable(data),
  );
  samples(list, data.samples, query);
  if (data.samples.length)
    tokens(area, data.samples, query, context).catch((error) =>
      setChildren(area, h("div", { class: "error" }, error.message)),
    );
}

// Shows the tokens of one sample: the chosen one, else one with a finding, else one that was trained.
async function tokens(area, every, query, context) {
  const chosen =
    every.find((each) => each.sample === query.sample) ||
    every.find((each) => Object.keys(each.findings).length) ||
    every.find((each) => each.trained && each.computed) ||
    every[0];
  const at = { run: query.run, stage: query.stage, step: query.step };
  const view = new TokenView(await get("sample", { ...at, sample: chosen.sample }), {
    ...query,
    sample: chosen.sample,
  });
  setChildren(
    area,
    h(
      "h2",
      {},
      "Tokens",
      h(
        "small",
        {},
        "of sample ",
        link(address("sample", { ...at, sample: chosen.sample }), chosen.sample),
        ` · reward ${number(chosen.reward)}`,
      ),
    ),
    view.element,
  );
  context.keys(view.keys());
}

function previousNext(query, data) {
  const to = (at, key, label) => {
    if (!at || !hasAnswer("step", { run: query.run, ...at })) return null;
    return h("a", { href: address("step", { run: query.run, ...at }), "data-key": key }, label);
  };
  return h("span", { class: "row" }, to(data.before, ",", "← previous"), to(data.after, ".", "next →"));
}

// Samples that are listed before the button for more.
const FIRST = 20;
const FINISH = (each) =>
  each.finish
    ? each.finish + (each.ended_by && each.ended_by !== "environment" ? ` (${each.ended_by})` : "")
    : each.status;

// The samples of the step; the page Samples has filters.
function samples(list, every, query) {
  const show = (most) =>
    setChildren(
      list,
      h("p", { class: "quiet" }, plural(every.length, "sample")),
      listing(every.slice(0, most), query),
      every.length > most
        ? h("button", { onclick: () => show(Infinity) }, `${every.length - most} more`)
        : null,
    );
  show(FIRST);
}

function listing(listed, query) {
  return table(
    [
      ["sample"],
      ["task"],
      ["group"],
      ["reward", "number"],
      ["parts"],
      ["advantage", "number"],
      ["tokens", "number"],
      ["finish reason"],
      ["answer"],
      ["findings"],
    ],
    listed.map((each) => {
      const at = { run: query.run, stage: query.stage, step: query.step };
      return h(
        "tr",
        { class: "to" },
        h("td", {}, sampleLink(at, each.sample)),
        h("td", { class: "wrap" }, each.task),
        h(
          "td",
          {},
          each.group ? link(address("group", { ...at, group: each.group }), "compare group") : "–",
        ),
        h("td", { class: "number" }, number(each.reward)),
        h(
          "td",
          { class: "quiet" },
          Object.entries(each.parts)
            .map(([name, value]) => `${name} ${number(value, 3)}`)
            .join(", "),
        ),
        h("td", { class: "number" }, number(each.advantage, 3)),
        h("td", { class: "number" }, count(each.sampled)),
        h("td", {}, FINISH(each)),
        h("td", { class: "wrap mono" }, each.text.slice(0, 160)),
        h("td", {}, findingCodes(each.findings)),
      );
    }),
  );
}

function ratios(data) {
  const grid = h("div", { class: "charts" });
  histogram(grid, data.ratios, data.ratios.limits);
  return [
    h("h2", {}, "Ratios", h("small", {}, "by inner epoch and sign of the advantage; dashed: clip range")),
    grid,
  ];
}

function metricsTable(data) {
  const total = Object.values(data.seconds).reduce((sum, each) => sum + each, 0);
  const phases = Object.entries(data.seconds)
    .sort((a, b) => b[1] - a[1])
    .filter(([, each]) => each > 0.0005);
  return [
    phases.length
      ? h(
          "p",
          { class: "quiet" },
          `${duration(total)}: ${phases.map(([name, each]) => `${name} ${duration(each)}`).join(", ")}`,
        )
      : null,
    table(
      [["metric"], ["value", "number"], ["unit"], ["definition"]],
      data.numbers.map((each) =>
        h(
          "tr",
          {},
          h("td", { class: "mono" }, each.name),
          h("td", { class: "number" }, number(each.value, 6)),
          h("td", { class: "quiet" }, each.unit),
          h("td", { class: "quiet wrap" }, each.formula),
        ),
      ),
    ),
  ];
}
