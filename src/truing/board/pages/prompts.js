// What a run drew: its prompts with their pass rates, and samples of all updates.
import { count, fill, h, link, number, plural, table } from "./dom.js";
import { address, get, go, here } from "./data.js";
import { plot } from "./chart.js";

export async function tasks(page, query, context) {
  const told = await get("tasks", {
    run: query.run,
    order: query.order || "pass_rate",
    backwards: query.backwards,
    start: query.start,
    text: query.text,
  });
  const rows = told.tasks.map((each) =>
    h(
      "tr",
      { class: "to" },
      h(
        "td",
        { class: "wrap" },
        link(address("samples", { run: query.run, task: each.task }), each.task),
        h("div", { class: "quiet" }, each.family),
      ),
      h("td", { class: "wrap" }, each.prompt === null ? "…" : each.prompt),
      h("td", { class: "number" }, count(each.attempts)),
      h("td", { class: "number" }, `${(100 * each.pass_rate).toFixed(0)} %`),
      h("td", { class: "number" }, number(each.reward, 3)),
      h("td", { class: "number" }, number(each.spread, 3)),
      h(
        "td",
        {},
        link(
          address("update", { run: query.run, stage: each.stage, update: each.update, task: each.task }),
          `${each.stage} ${each.update}`,
        ),
      ),
    ),
  );
  const area = h("div", { class: "plot" });
  fill(
    page,
    crumbs(query),
    h("h1", {}, "Prompts"),
    reading(told, context),
    h(
      "p",
      { class: "quiet" },
      `${plural(told.count, "prompt")}, ${plural(told.rows, "attempt")} with a reward. Passed is a reward of 1 or more; spread is the standard deviation of an attempt.`,
    ),
    h(
      "figure",
      { class: "chart" },
      h("h3", {}, "Pass rates: what is always right or always wrong teaches nothing"),
      area,
    ),
    h("p", { class: "row" }, find(query)),
    table(
      [
        head(query, "task", "task"),
        ["asks"],
        head(query, "attempts", "attempts", "number"),
        head(query, "pass_rate", "passed", "number"),
        head(query, "reward", "mean reward", "number"),
        head(query, "spread", "spread", "number"),
        head(query, "last", "last drawn"),
      ],
      rows,
    ),
    pages(query, told.count),
  );
  const names = ["never", ...[...Array(10).keys()].map((i) => `${10 * i}–${10 * i + 10} %`), "always"];
  plot(area, [{ type: "bar", x: names, y: told.rates, hovertemplate: "%{y} prompts" }], {
    xaxis: { title: { text: "passed" } },
    yaxis: { title: { text: "prompts" } },
    hovermode: "closest",
  });
}

export async function samples(page, query, context) {
  const asked = {
    run: query.run,
    task: query.task,
    group: query.group,
    finish: query.finish,
    status: query.status,
    least: query.least,
    most: query.most,
    found: query.found,
    order: query.order,
    backwards: query.backwards,
    start: query.start,
  };
  const told = await get("samples", asked);
  const change = (name) => (event) =>
    go("samples", {
      ...query,
      [name]: event.target.type === "checkbox" ? (event.target.checked ? "1" : "") : event.target.value,
      start: "",
    });
  const select = (name, values) =>
    h(
      "label",
      {},
      name,
      h(
        "select",
        { onchange: change(name) },
        ["", ...values].map((each) =>
          h("option", { value: each, selected: query[name] === each }, each || "all"),
        ),
      ),
    );
  const text = (name, label, type) =>
    h(
      "label",
      {},
      label,
      h("input", { type, step: "any", value: query[name] || "", onchange: change(name) }),
    );
  const rows = told.samples.map((each) => {
    const at = { run: query.run, stage: each.stage, update: each.update };
    return h(
      "tr",
      { class: "to" },
      h("td", {}, link(address("sample", { ...at, sample: each.sample_id }), each.sample_id)),
      h("td", {}, link(address("update", at), `${each.stage} ${each.update}`)),
      h("td", { class: "wrap" }, each.task_id),
      h("td", {}, link(address("group", { ...at, group: each.group_id }), "side by side")),
      h("td", { class: "number" }, number(each.reward)),
      h("td", { class: "number" }, count(each.turn_tokens)),
      h("td", { class: "number" }, each.turns),
      h("td", {}, each.finish_reason),
      h("td", {}, `${each.status}, by ${each.ended_by}`),
    );
  });
  fill(
    page,
    crumbs(query),
    h("h1", {}, "Samples of all updates"),
    reading(told, context),
    h(
      "div",
      { class: "row" },
      text("task", "task", "search"),
      text("group", "group", "search"),
      select("finish", told.finishes.filter(Boolean)),
      select("status", told.statuses),
      text("least", "reward from", "number"),
      text("most", "to", "number"),
      h(
        "label",
        {},
        h("input", { type: "checkbox", checked: query.found === "1", onchange: change("found") }),
        "has a finding",
      ),
    ),
    h("p", { class: "quiet" }, plural(told.count, "sample")),
    table(
      [
        ["sample"],
        head(query, "update", "update"),
        ["task"],
        ["group"],
        head(query, "reward", "reward", "number"),
        head(query, "turn_tokens", "tokens of turns", "number"),
        ["turns", "number"],
        ["finish"],
        ["ended"],
      ],
      rows,
    ),
    pages(query, told.count),
  );
}

function crumbs(query) {
  return h("p", { class: "crumbs" }, link(address("run", { run: query.run }), query.run));
}

// Of a large run that goes on, samples are read while somebody waits; the page asks again.
function reading(told, context) {
  if (told.waiting) context.again(200);
  return [
    told.waiting
      ? h("p", { class: "quiet" }, `${plural(told.waiting, "update is", "updates are")} still to be read …`)
      : null,
    told.unreadable_count
      ? h(
          "div",
          { class: "error" },
          `${plural(told.unreadable_count, "update")} cannot be read: ${told.unreadable.join("; ")}`,
        )
      : null,
  ];
}

function head(query, order, text, kind) {
  const now = query.order === order;
  const sort = () =>
    go(here().page, { ...query, order, backwards: now && !query.backwards ? "1" : "", start: "" });
  return [
    h(
      "button",
      { class: "sort", onclick: sort, "aria-pressed": now },
      text,
      now ? (query.backwards ? " ↓" : " ↑") : "",
    ),
    kind,
  ];
}

function find(query) {
  return h(
    "label",
    {},
    "find",
    h("input", {
      type: "search",
      value: query.text || "",
      "data-key": "/",
      onchange: (event) => go("tasks", { ...query, text: event.target.value, start: "" }),
    }),
  );
}

const PAGE = 100;

function pages(query, many) {
  const start = Number(query.start || 0),
    name = here().page;
  if (many <= PAGE) return null;
  return h(
    "p",
    { class: "row" },
    start > 0
      ? h(
          "a",
          { href: address(name, { ...query, start: Math.max(0, start - PAGE) || "" }), "data-key": "," },
          "← before",
        )
      : null,
    h("span", { class: "quiet" }, `${start + 1} to ${Math.min(many, start + PAGE)} of ${count(many)}`),
    start + PAGE < many
      ? h("a", { href: address(name, { ...query, start: start + PAGE }), "data-key": "." }, "more →")
      : null,
  );
}
