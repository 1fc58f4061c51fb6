// Samples of all updates: of which stage, group, task, with which reward, and what they answer.
import { count, fill, h, link, number, table } from "./dom.js";
import { address, get } from "./data.js";
import { counted, crumbs, head, input, list, reading, select } from "./list.js";

const FILTERS = ["task", "group", "finish", "status", "least", "most", "found"];
const ALL = "all";

export async function samples(page, query, context) {
  const asked = ["run", "stage", ...FILTERS, "order", "backwards", "start"];
  const told = await get("samples", Object.fromEntries(asked.map((name) => [name, query[name]])));
  const where = told.stage === ALL ? "" : ` of stage ${told.stage}`;
  const chosen = FILTERS.some((name) => query[name]);
  const sorted = { order: "update", ...query };
  const columns = [
    ["sample"],
    head(sorted, "update", "update"),
    ["task"],
    ["is asked, and answers"],
    head(sorted, "reward", "reward", "number"),
    head(sorted, "turn_tokens", "tokens of turns", "number"),
    ["turns", "number"],
    ["finish"],
    ["ended"],
  ];
  const nothing = told.waiting ? "No sample that was read yet is like that." : "No sample is like that.";
  fill(
    page,
    crumbs(query),
    h("h1", {}, "Samples"),
    reading(told, context, (many) => counted(many, "answer")),
    h("p", { class: "quiet" }, `${counted(told.count, "sample")}${where}${chosen ? " like that" : ""}`),
    list(
      query,
      told,
      filters(query, told),
      table(
        columns,
        told.samples.map((each) => row(query, each)),
      ),
      nothing,
    ),
  );
}

function filters(query, told) {
  const every = (names) => names.map((each) => [each, each]);
  const any = (names) => [["", "all"], ...every(names)];
  const stages = new Set(told.stage === ALL ? told.stages : [...told.stages, told.stage]);
  return [
    select(query, "stage", "stage", [[ALL, "all"], ...every([...stages])], told.stage),
    input(query, "task", "task", { type: "search" }),
    input(query, "group", "group", { type: "search" }),
    select(query, "finish", "finish", any(told.finishes.filter(Boolean)), query.finish || ""),
    select(query, "status", "status", any(told.statuses), query.status || ""),
    input(query, "least", "reward from", { type: "number", step: "any" }),
    input(query, "most", "to", { type: "number", step: "any" }),
    input(query, "found", "has a finding", { type: "checkbox" }),
  ];
}

function row(query, each) {
  const at = { run: query.run, stage: each.stage, update: each.update };
  return h(
    "tr",
    { class: "to" },
    h("td", {}, link(address("sample", { ...at, sample: each.sample_id }), each.sample_id)),
    h("td", { class: "line" }, link(address("update", at), `${each.stage} ${each.update}`)),
    h(
      "td",
      { class: "wrap" },
      each.task_id,
      h("div", {}, link(address("group", { ...at, group: each.group_id }), "its group")),
    ),
    h(
      "td",
      { class: "wrap words" },
      h("div", { class: "quiet" }, each.prompt === null ? "…" : each.prompt),
      each.answer === null ? "…" : each.answer,
    ),
    h("td", { class: "number" }, number(each.reward)),
    h("td", { class: "number" }, count(each.turn_tokens)),
    h("td", { class: "number" }, each.turns),
    h("td", {}, each.finish_reason),
    h("td", { class: "line" }, `${each.status}, by ${each.ended_by}`),
  );
}
