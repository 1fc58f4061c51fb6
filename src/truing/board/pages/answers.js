// The answers of an evaluation: what each was paid, and what a second grader gives it.
import { count, h, interval, number, setChildren, table } from "./dom.js";
import { get } from "./api.js";
import { crumbs, filterInput, filterSelect, list, sortHeader, withCount } from "./list_view.js";

const LESS = "paid, and the second grader gives less";

export async function answers(page, query) {
  const names = ["run", "evaluation", "task", "refused", "order", "backwards", "start"];
  const data = await get("answers", Object.fromEntries(names.map((name) => [name, query[name]])));
  const graded = data.second !== null;
  const sorted = { order: "difference", ...query };
  const columns = [
    sortHeader(sorted, "paid", "paid", "number"),
    ...(graded
      ? [
          sortHeader(sorted, "second", "second grader", "number"),
          sortHeader(sorted, "difference", "second − paid", "number"),
        ]
      : []),
    ["answer"],
    ["right answer"],
    sortHeader(sorted, "task", "task"),
  ];
  setChildren(
    page,
    crumbs(query),
    h("h1", {}, "Evaluated answers"),
    h(
      "p",
      { class: "quiet" },
      `${withCount(data.every, "answer")}, paid ${interval(data.paid)}`,
      graded
        ? `, by the second grader ${interval(data.second)}, which gives less to ${count(data.refused_count)}`
        : "",
    ),
    list(
      query,
      data,
      filters(query, data, graded),
      table(
        columns,
        data.answers.map((each) => row(each, graded)),
      ),
      "No matching answers.",
    ),
  );
}

function filters(query, data, graded) {
  const every = data.evaluations.map((each) => [each, each.replaceAll("_", " ")]);
  return [
    filterSelect(query, "evaluation", "evaluation", every, data.evaluation),
    filterInput(query, "task", "task", { type: "search" }),
    graded ? filterInput(query, "refused", LESS, { type: "checkbox" }) : null,
  ];
}

function row(each, graded) {
  return h(
    "tr",
    { class: "to" },
    h("td", { class: "number" }, number(each.paid)),
    graded
      ? [
          h("td", { class: "number" }, number(each.second)),
          h("td", { class: "number" }, number(each.difference)),
        ]
      : null,
    answerCells(each),
  );
}

// An answer, the right one, and the task.
export function answerCells(each) {
  return [
    h(
      "td",
      { class: "wrap answer" },
      each.answer,
      each.error ? h("div", { class: "quiet" }, each.error) : null,
    ),
    h("td", { class: "wrap answer" }, each.right ?? "–"),
    h("td", { class: "wrap run quiet" }, each.task),
  ];
}
