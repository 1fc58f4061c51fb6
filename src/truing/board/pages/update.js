// One update: its samples, its ratios, every number with its definition.
import { count, duration, fill, h, link, marks, number, plural, table } from "./dom.js";
import { address, get, holds, remember } from "./data.js";
import { finding } from "./finding.js";
import { toSample } from "./links.js";
import { histogram } from "./ratios.js";
import { View } from "./tokens.js";

export async function update(page, query, context) {
  const asked = { run: query.run, stage: query.stage, update: query.update };
  let trouble = null;
  const told = await get("update", asked).catch((error) => {
    trouble = h("div", { class: "error" }, error.message);
    return get("numbers", asked);
  });
  const list = h("div", {}),
    shown = h("div", {});
  fill(
    page,
    h("p", { class: "crumbs" }, link(address("run", { run: query.run }), query.run)),
    h(
      "div",
      { class: "row" },
      h("h1", {}, `${told.stage} ${told.update}`),
      h(
        "span",
        { class: "quiet" },
        `${told.at} of the run’s ${told.of} updates · loss: ${told.label.replaceAll("_", " ")}`,
      ),
      h("span", { class: "grow" }),
      steps(query, told),
    ),
    trouble,
    told.findings.map((each) => finding({ ...each, incidents: [] }, query.run)),
    told.incidents.map((each) => h("p", { class: "wrap quiet" }, each)),
    told.ratios ? ratios(told) : null,
    h("h2", {}, "Samples"),
    list,
    shown,
    h("h2", {}, "Numbers"),
    numbers(told),
  );
  samples(list, told.samples, query);
  if (told.samples.length)
    tokens(shown, told.samples, query, context).catch((error) =>
      fill(shown, h("div", { class: "error" }, error.message)),
    );
}

// The tokens of one sample at once: of one that a finding names, else of one that was trained.
async function tokens(shown, every, query, context) {
  const chosen =
    every.find((each) => each.sample === query.sample) ||
    every.find((each) => Object.keys(each.findings).length) ||
    every.find((each) => each.trained && each.computed) ||
    every[0];
  const at = { run: query.run, stage: query.stage, update: query.update };
  const view = new View(await get("sample", { ...at, sample: chosen.sample }), {
    ...query,
    sample: chosen.sample,
  });
  fill(
    shown,
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

function steps(query, told) {
  const to = (place, key, says) => {
    if (!place || !holds("update", { run: query.run, ...place })) return null;
    return h("a", { href: address("update", { run: query.run, ...place }), "data-key": key }, says);
  };
  return h("span", { class: "row" }, to(told.before, ",", "← earlier"), to(told.after, ".", "later →"));
}

// Samples that are listed before somebody asks for all.
const FIRST = 20;
const FINISH = (each) =>
  each.finish ? `${each.finish}${each.ended_by !== "world" ? ` (${each.ended_by})` : ""}` : each.status;

export function samples(list, every, query) {
  const kinds = { group: "group", task: "task", finish: "finish" };
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
    remember({ [name]: value });
    show();
  };
  const rows = h("div", {});
  const values = (name) => [...new Set(every.map((each) => each[name]))].filter(Boolean).slice(0, 500);
  fill(
    list,
    h(
      "div",
      { class: "row" },
      select("group", values("group")),
      select("task", values("task")),
      select("finish", values("finish")),
      bound("least", "reward from"),
      bound("most", "to"),
      h(
        "label",
        {},
        h("input", {
          type: "checkbox",
          checked: chosen.found === "1",
          onchange: (event) => change("found", event.target.checked ? "1" : ""),
        }),
        "has a finding",
      ),
    ),
    rows,
  );
  let most = FIRST;
  const show = () => {
    const kept = every.filter(
      (each) =>
        ["group", "task", "finish"].every((name) => !chosen[name] || each[name] === chosen[name]) &&
        (!chosen.least || each.reward >= Number(chosen.least)) &&
        (!chosen.most || (each.reward !== null && each.reward <= Number(chosen.most))) &&
        (!chosen.found || Object.keys(each.findings).length),
    );
    fill(
      rows,
      h(
        "p",
        { class: "quiet" },
        kept.length === every.length
          ? plural(every.length, "sample")
          : `${kept.length} of ${every.length} samples`,
      ),
      listing(kept.slice(0, most), query),
      kept.length > most
        ? h(
            "button",
            {
              onclick: () => {
                most = Infinity;
                show();
              },
            },
            `${kept.length - most} more`,
          )
        : null,
    );
  };
  show();
}

export function listing(kept, query) {
  return table(
    [
      ["sample"],
      ["task"],
      ["group"],
      ["reward", "number"],
      ["parts"],
      ["advantage", "number"],
      ["tokens drawn", "number"],
      ["finish"],
      ["says"],
      ["findings"],
    ],
    kept.map((each) => {
      const at = { run: query.run, stage: each.stage || query.stage, update: each.update || query.update };
      return h(
        "tr",
        { class: "to" },
        h("td", {}, toSample(at, each.sample)),
        h("td", { class: "wrap" }, each.task),
        h("td", {}, link(address("group", { ...at, group: each.group }), "side by side")),
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
        h("td", {}, marks(each.findings)),
      );
    }),
  );
}

function ratios(told) {
  const grid = h("div", { class: "charts" });
  histogram(grid, told.ratios, told.ratios.limits);
  return [
    h(
      "h2",
      {},
      "Ratios",
      h("small", {}, "by inner epoch and sign of the advantage; the clip's boundaries are dashed"),
    ),
    grid,
  ];
}

function numbers(told) {
  const total = Object.values(told.seconds).reduce((sum, each) => sum + each, 0);
  const phases = Object.entries(told.seconds)
    .sort((a, b) => b[1] - a[1])
    .filter(([, each]) => each > 0.0005);
  return [
    h(
      "p",
      { class: "quiet" },
      `${duration(total)}: ${phases.map(([name, each]) => `${name} ${duration(each)}`).join(", ")}`,
    ),
    table(
      [["number"], ["value", "number"], ["unit"], ["what it is"]],
      told.numbers.map((each) =>
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
