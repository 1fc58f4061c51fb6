// Samples of all steps, with filters by stage, task, group, finish reason and reward.
import { count, h, link, number, setChildren, table } from "./dom.js";
import { address, get } from "./api.js";
import { crumbs, filterInput, filterSelect, list, loadingNotes, sortHeader, withCount } from "./list_view.js";

const FILTERS = ["task", "group", "finish", "status", "least", "most", "found"];
const ALL = "all";

export async function samples(page, query, context) {
  const names = ["run", "stage", ...FILTERS, "order", "backwards", "start"];
  const data = await get("samples", Object.fromEntries(names.map((name) => [name, query[name]])));
  const where = data.stage === ALL ? "" : ` of stage ${data.stage}`;
  const chosen = FILTERS.some((name) => query[name]);
  const sorted = { order: "step_index", ...query };
  const columns = [
    ["sample"],
    sortHeader(sorted, "step_index", "step"),
    ["task"],
    ["prompt and answer"],
    sortHeader(sorted, "reward", "reward", "number"),
    sortHeader(sorted, "turn_tokens", "tokens", "number"),
    ["turns", "number"],
    ["finish reason"],
    ["ended by"],
  ];
  const nothing = data.waiting ? "No matching samples yet." : "No matching samples.";
  setChildren(
    page,
    crumbs(query),
    h("h1", {}, "Samples"),
    loadingNotes(data, context, (many) => withCount(many, "sample")),
    h(
      "p",
      { class: "quiet" },
      `${count(data.count)} ${chosen ? "matching " : ""}${data.count === 1 ? "sample" : "samples"}${where}`,
    ),
    list(
      query,
      data,
      filters(query, data),
      table(
        columns,
        data.samples.map((each) => row(query, each)),
      ),
      nothing,
    ),
  );
}

function filters(query, data) {
  const every = (names) => names.map((each) => [each, each]);
  const any = (names) => [["", "all"], ...every(names)];
  const stages = new Set(data.stage === ALL ? data.stages : [...data.stages, data.stage]);
  return [
    filterSelect(query, "stage", "stage", [[ALL, "all"], ...every([...stages])], data.stage),
    filterInput(query, "task", "task", { type: "search" }),
    filterInput(query, "group", "group", { type: "search" }),
    filterSelect(query, "finish", "finish reason", any(data.finishes.filter(Boolean)), query.finish || ""),
    filterSelect(query, "status", "status", any(data.statuses), query.status || ""),
    filterInput(query, "least", "reward min", { type: "number", step: "any" }),
    filterInput(query, "most", "max", { type: "number", step: "any" }),
    filterInput(query, "found", "with findings", { type: "checkbox" }),
  ];
}

function row(query, each) {
  const at = { run: query.run, stage: each.stage, step: each.step };
  return h(
    "tr",
    { class: "to" },
    h("td", {}, link(address("sample", { ...at, sample: each.sample_id }), each.sample_id)),
    h("td", { class: "line" }, link(address("step", at), `${each.stage} ${each.step}`)),
    h(
      "td",
      { class: "wrap" },
      each.task_id,
      h("div", {}, link(address("group", { ...at, group: each.group_id }), "group")),
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
    h("td", { class: "line" }, `${each.status}, ${each.ended_by}`),
  );
}
