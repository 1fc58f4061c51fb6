// The prompts of a run: text, pass rate, and the step that sampled each last.
import { count, h, link, number, setChildren, table } from "./dom.js";
import { address, get, navigate } from "./api.js";
import { plot, seriesColor } from "./chart.js";
import { addressWith, crumbs, filterInput, filterSelect } from "./list_view.js";
import { list, loadingNotes, sortHeader, withCount } from "./list_view.js";

export async function tasks(page, query, context) {
  const data = await get("tasks", {
    run: query.run,
    order: query.order || "pass_rate",
    backwards: query.backwards,
    start: query.start,
    text: query.text,
    passed: query.passed,
  });
  const sorted = { order: "pass_rate", ...query };
  const columns = [
    sortHeader(sorted, "task", "task"),
    ["prompt"],
    sortHeader(sorted, "rollouts", "rollouts", "number"),
    sortHeader(sorted, "pass_rate", "pass rate", "number"),
    sortHeader(sorted, "reward", "mean reward", "number"),
    sortHeader(sorted, "spread", "std", "number"),
    sortHeader(sorted, "last", "last sampled"),
  ];
  const area = h("div", { class: "plot" });
  const about =
    "A rollout passes with a reward of 1 or more. std: standard deviation of the reward over rollouts.";
  setChildren(
    page,
    crumbs(query),
    h("h1", {}, "Prompts"),
    loadingNotes(data, context, (many) => withCount(many, "prompt")),
    h(
      "p",
      { class: "quiet" },
      `${withCount(data.every, "prompt")}, ${withCount(data.rows, "rollout")} with a reward. ${about}`,
    ),
    h(
      "figure",
      { class: "chart" },
      h("h3", {}, "Pass rates (prompts at 0 % or 100 % give no gradient)"),
      area,
    ),
    list(
      query,
      data,
      filters(query, data),
      table(
        columns,
        data.tasks.map((each) => row(query, each)),
      ),
      nothing(query, data),
    ),
  );
  const draw = () => passRateChart(area, query, data);
  context.charts(() => [{ show: draw }]);
  draw();
}

function filters(query, data) {
  const shares = data.bars.map((name, i) => [name, `${binLabel(name)} (${count(data.rates[i])})`]);
  const chosen = query.passed || "";
  return [
    filterInput(query, "text", "find", { type: "search", "data-key": "/" }),
    filterSelect(query, "passed", "pass rate", [["", "all pass rates"], ...shares], chosen),
    chosen
      ? h("a", { href: addressWith(query, { passed: "" }), "data-hold": "passed" }, "all pass rates")
      : null,
    query.text || chosen
      ? h("span", { class: "quiet" }, `${count(data.count)} of ${withCount(data.every, "prompt")}`)
      : null,
  ];
}

function nothing(query, data) {
  if (data.waiting || data.unread) return "No matching prompts yet.";
  return query.text || query.passed ? "No matching prompts." : "No rollout with a reward is recorded yet.";
}

function row(query, each) {
  const at = { run: query.run, stage: each.stage, step: each.step };
  return h(
    "tr",
    { class: "to" },
    h(
      "td",
      { class: "wrap" },
      link(address("samples", { run: query.run, stage: "all", task: each.task }), each.task),
      h("div", { class: "quiet" }, each.family),
    ),
    h("td", { class: "wrap words" }, each.prompt === null ? "…" : each.prompt),
    h("td", { class: "number" }, count(each.rollouts)),
    h("td", { class: "number" }, `${(100 * each.pass_rate).toFixed(0)} %`),
    h("td", { class: "number" }, number(each.reward, 3)),
    h("td", { class: "number" }, number(each.spread, 3)),
    h("td", { class: "line" }, link(address("step", at), `${each.stage} ${each.step}`)),
  );
}

function binLabel(bar) {
  if (bar === "never") return "0 %";
  if (bar === "always") return "100 %";
  return bar.includes("-") ? `${bar.replace("-", "–")} %` : bar;
}

// A click on a bar lists its prompts; a click on the chosen bar lists all prompts.
function passRateChart(area, query, data) {
  const chosen = data.bars.indexOf(query.passed);
  const paint = data.bars.map((_, i) =>
    chosen < 0 || i === chosen ? seriesColor(0) : `${seriesColor(0)}44`,
  );
  const trace = {
    type: "bar",
    x: data.bars.map(binLabel),
    y: data.rates,
    marker: { color: paint },
    hovertemplate: "%{x}: %{y} prompts<extra></extra>",
  };
  plot(area, [trace], {
    xaxis: { type: "category", title: { text: "pass rate" }, fixedrange: true },
    yaxis: { title: { text: "prompts" }, fixedrange: true },
    hovermode: "closest",
    dragmode: false,
  }).then(() => {
    area.removeAllListeners("plotly_click");
    area.on("plotly_click", (event) => {
      const at = event.points[0].pointNumber;
      navigate("tasks", { ...query, passed: at === chosen ? "" : data.bars[at], start: "" });
    });
  });
}
