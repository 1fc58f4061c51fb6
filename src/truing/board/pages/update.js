// One update: its samples, its ratios, and every metric with its definition.
import { count, duration, findingCodes, h, link } from "./dom.js";
import { number, plural, sampleLink, setChildren, table } from "./dom.js";
import { address, get, hasAnswer, updateAddress } from "./api.js";
import { finding } from "./finding.js";
import { histogram } from "./ratio_histogram.js";
import { TokenView } from "./tokens.js";

export async function update(page, query, context) {
  const question = { run: query.run, stage: query.stage, update: query.update };
  let trouble = null;
  const data = await get("update", question).catch((error) => {
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
      h("h1", {}, `${data.stage} ${data.update}`),
      h(
        "span",
        { class: "quiet" },
        `${data.at} of the run’s ${data.of} steps · loss: ${data.label.replaceAll("_", " ")}`,
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
  const at = { run: query.run, stage: query.stage, update: query.update };
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
    if (!at || !hasAnswer("update", { run: query.run, ...at })) return null;
    return h("a", { href: address("update", { run: query.run, ...at }), "data-key": key }, label);
  };
  return h("span", { class: "row" }, to(data.before, ",", "← previous"), to(data.after, ".", "next →"));
}

// Samples that are listed before the button for more.
const FIRST = 20;
const FINISH = (each) =>
  each.finish ? `${each.finish}${each.ended_by !== "environment" ? ` (${each.ended_by})` : ""}` : each.status;

export function samples(list, every, query) {
  const kinds = { group: "group", task: "task", finish: "finish reason" };
  const chosen = { ...query };
  const select = (name, values) =>
    h(
      "label",
      {},
      kinds[name],
      h(
        "select",
        { onchange: (event) => change(name, event.target.value) },
        ["", ...values].map((value) =>
          h("option", { value, selected: chosen[name] === value }, value || "all"),
        ),
      ),
    );
  const bound = (name, label) =>
    h(
      "label",
      {},
      label,
      h("input", {
        type: "number",
        step: "any",
        value: chosen[name] || "",
        onchange: (event) => change(name, event.target.value),
      }),
    );
  const change = (name, value) => {
    chosen[name] = value;
    updateAddress({ [name]: value });
    show();
  };
  const rows = h("div", {});
  const values = (name) => [...new Set(every.map((each) => each[name]))].filter(Boolean).slice(0, 500);
  setChildren(
    list,
    h(
      "div",
      { class: "row" },
      select("group", values("group")),
      select("task", values("task")),
      select("finish", values("finish")),
      bound("least", "reward min"),
      bound("most", "max"),
      h(
        "label",
        {},
        h("input", {
          type: "checkbox",
          checked: chosen.found === "1",
          onchange: (event) => change("found", event.target.checked ? "1" : ""),
        }),
        "with findings",
      ),
    ),
    rows,
  );
  let most = FIRST;
  const show = () => {
    const shown = every.filter(
      (each) =>
        ["group", "task", "finish"].every((name) => !chosen[name] || each[name] === chosen[name]) &&
        (!chosen.least || each.reward >= Number(chosen.least)) &&
        (!chosen.most || (each.reward !== null && each.reward <= Number(chosen.most))) &&
        (!chosen.found || Object.keys(each.findings).length),
    );
    setChildren(
      rows,
      h(
        "p",
        { class: "quiet" },
        shown.length === every.length
          ? plural(every.length, "sample")
          : `${shown.length} of ${every.length} samples`,
      ),
      listing(shown.slice(0, most), query),
      shown.length > most
        ? h(
            "button",
            {
              onclick: () => {
                most = Infinity;
                show();
              },
            },
            `${shown.length - most} more`,
          )
        : null,
    );
  };
  show();
}

export function listing(listed, query) {
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
      const at = { run: query.run, stage: each.stage || query.stage, update: each.update || query.update };
      return h(
        "tr",
        { class: "to" },
        h("td", {}, sampleLink(at, each.sample)),
        h("td", { class: "wrap" }, each.task),
        h("td", {}, link(address("group", { ...at, group: each.group }), "compare group")),
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
    h(
      "p",
      { class: "quiet" },
      `${duration(total)}: ${phases.map(([name, each]) => `${name} ${duration(each)}`).join(", ")}`,
    ),
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
