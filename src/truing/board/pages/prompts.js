// What a run drew, prompt by prompt: what is asked, how often it was passed, and when it was drawn last.
import { count, fill, h, link, number, table } from "./dom.js";
import { address, get, go } from "./data.js";
import { colour, plot } from "./chart.js";
import { counted, crumbs, head, input, list, otherwise, reading, select } from "./list.js";

export async function tasks(page, query, context) {
  const told = await get("tasks", {
    run: query.run,
    order: query.order || "pass_rate",
    backwards: query.backwards,
    start: query.start,
    text: query.text,
    passed: query.passed,
  });
  const sorted = { order: "pass_rate", ...query };
  const columns = [
    head(sorted, "task", "task"),
    ["asks"],
    head(sorted, "attempts", "attempts", "number"),
    head(sorted, "pass_rate", "passed", "number"),
    head(sorted, "reward", "mean reward", "number"),
    head(sorted, "spread", "spread", "number"),
    head(sorted, "last", "last drawn"),
  ];
  const area = h("div", { class: "plot" });
  const about = "Passed is a reward of 1 or more; spread is the standard deviation of an attempt.";
  fill(
    page,
    crumbs(query),
    h("h1", {}, "Prompts"),
    reading(told, context, (many) => `what ${counted(many, "prompt")} ask${many === 1 ? "s" : ""}`),
    h(
      "p",
      { class: "quiet" },
      `${counted(told.every, "prompt")}, ${counted(told.rows, "attempt")} with a reward. ${about}`,
    ),
    h(
      "figure",
      { class: "chart" },
      h("h3", {}, "Pass rates: what is always right or always wrong teaches nothing"),
      area,
    ),
    list(
      query,
      told,
      filters(query, told),
      table(
        columns,
        told.tasks.map((each) => row(query, each)),
      ),
      nothing(query, told),
    ),
  );
  const draw = () => bars(area, query, told);
  context.keep(() => [{ show: draw }]);
  draw();
}

function filters(query, told) {
  const shares = told.bars.map((name, i) => [name, `${words(name)} (${count(told.rates[i])})`]);
  const chosen = query.passed || "";
  return [
    input(query, "text", "find", { type: "search", "data-key": "/" }),
    select(query, "passed", "passed", [["", "all pass rates"], ...shares], chosen),
    chosen
      ? h("a", { href: otherwise(query, { passed: "" }), "data-hold": "passed" }, "all pass rates")
      : null,
    query.text || chosen
      ? h("span", { class: "quiet" }, `${count(told.count)} of ${counted(told.every, "prompt")}`)
      : null,
  ];
}

function nothing(query, told) {
  if (told.waiting || told.unread) return "No prompt that was read yet is like that.";
  return query.text || query.passed
    ? "No prompt is like that."
    : "No attempt with a reward is on record yet.";
}

function row(query, each) {
  const at = { run: query.run, stage: each.stage, update: each.update, task: each.task };
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
    h("td", { class: "number" }, count(each.attempts)),
    h("td", { class: "number" }, `${(100 * each.pass_rate).toFixed(0)} %`),
    h("td", { class: "number" }, number(each.reward, 3)),
    h("td", { class: "number" }, number(each.spread, 3)),
    h("td", { class: "line" }, link(address("update", at), `${each.stage} ${each.update}`)),
  );
}

function words(bar) {
  return bar.includes("-") ? `${bar.replace("-", "–")} %` : bar;
}

// A click on a bar lists its prompts, a click on the one that is listed lists all again.
function bars(area, query, told) {
  const chosen = told.bars.indexOf(query.passed);
  const paint = told.bars.map((_, i) => (chosen < 0 || i === chosen ? colour(0) : `${colour(0)}44`));
  const trace = {
    type: "bar",
    x: told.bars.map(words),
    y: told.rates,
    marker: { color: paint },
    hovertemplate: "%{x}: %{y} prompts<extra></extra>",
  };
  plot(area, [trace], {
    xaxis: { title: { text: "passed" }, fixedrange: true },
    yaxis: { title: { text: "prompts" }, fixedrange: true },
    hovermode: "closest",
    dragmode: false,
  }).then(() => {
    area.removeAllListeners("plotly_click");
    area.on("plotly_click", (event) => {
      const at = event.points[0].pointNumber;
      go("tasks", { ...query, passed: at === chosen ? "" : told.bars[at], start: "" });
    });
  });
}
