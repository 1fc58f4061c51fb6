// Charts of several runs: over whole runs, or over one stage with steps counted from its first.
import { h, number, setChildren } from "./dom.js";
import { get } from "./api.js";
import { numberAt, stepLabel } from "./axes.js";
import { cssColor, escapeMarkup, evaluationTrace, plot, seriesColor } from "./chart.js";
import { definitions } from "./chart_notes.js";

const FIRST_METRICS = [
  "reward/mean",
  "entropy/sampled",
  "kl_all/k3",
  "length/mean",
  "grad/norm",
  "group/zero_variance_share",
  "loss/supervised",
  "ratio/std",
];

// Adds the charts of runs and a menu for more metrics; returns them so that they can be drawn again.
export function compareCurves(element, data) {
  const grid = h("div", { class: "charts" });
  const boxes = [];
  const shared = data.runs[0].spans
    .map((each) => each.stage)
    .filter((stage) => data.runs.every((run) => spanOf(run, stage) !== undefined));
  const shown = { stage: shared[shared.length - 1] };
  const add = (name) => {
    const box = chart(data, name, shown);
    boxes.push(box);
    grid.append(box.element);
    box.show();
  };
  const choice = [undefined, ...shared].map((stage) =>
    h(
      "button",
      {
        "aria-pressed": String(stage === shown.stage),
        onclick: (event) => {
          shown.stage = stage;
          for (const each of choice) each.setAttribute("aria-pressed", String(each === event.currentTarget));
          for (const each of boxes) each.show();
        },
      },
      stage || "whole runs",
    ),
  );
  element.append(
    h(
      "p",
      { class: "row" },
      h("span", { role: "group", class: "row", "aria-label": "stage" }, choice),
      picker(data, add),
    ),
    grid,
  );
  for (const name of FIRST_METRICS.filter((each) => data.numbers.includes(each))) add(name);
  return boxes;
}

const UNRECORDED = { series: [{ name: "", label: "", x: [], y: [] }], units: [] };

function picker(data, add) {
  const choose = (event) => {
    add(event.target.value);
    event.target.value = "";
  };
  const names = ["", ...data.numbers].map((each) => h("option", { value: each }, each));
  return h("label", {}, "add metric", h("select", { onchange: choose }, names));
}

function spanOf(run, stage) {
  return run.spans.find((each) => each.stage === stage);
}

function chart(data, name, seen) {
  const area = h("div", { class: "plot" });
  const below = h("div", {});
  const element = h("figure", { class: "chart", "aria-label": name }, h("h3", {}, name), area, below);
  const answers = Promise.all(
    data.runs.map((run) =>
      run.numbers.includes(name) ? get("number", { run: run.run, number: name }) : UNRECORDED,
    ),
  );
  const show = async () => {
    const both = await answers;
    const series = both.map((each, i) => cutToStage(each.series[0], data.runs[i], seen.stage));
    area.hidden = !series.some((each) => each.x.length);
    if (!area.hidden)
      await draw(area, data, name, series, [...new Set(both.flatMap((each) => each.units))], seen.stage);
    setChildren(
      below,
      area.hidden ? h("p", { class: "quiet" }, `Not recorded in ${seen.stage}.`) : legend(data, series),
      definitions({ ...both[0], series: both.flatMap((each) => each.series) }),
    );
    element.dataset.drawn = "yes";
  };
  const box = {
    element,
    show: () => show().catch((error) => setChildren(below, h("div", { class: "error" }, error.message))),
  };
  return box;
}

// Cuts a curve to a stage and counts its steps from the stage's first recorded one.
function cutToStage(series, run, stage) {
  const span = stage === undefined ? { start: 0, end: Infinity, first: 1 } : spanOf(run, stage);
  const kept = series.x.map((_, i) => i).filter((i) => series.x[i] > span.start && series.x[i] <= span.end);
  const select = (values) => values && kept.map((i) => values[i]);
  return {
    at: kept.map((i) => escapeMarkup(stepLabel(series.x[i], run.spans))),
    x: kept.map((i) => numberAt(span, series.x[i] - 1)),
    y: select(series.y),
    low: select(series.low),
    high: select(series.high),
  };
}

function draw(area, data, name, series, units, stage) {
  const stageName = stage === undefined ? "the run" : escapeMarkup(stage);
  const traces = series.flatMap((each, i) => lines(each, i, escapeMarkup(data.runs[i].run)));
  if (name === "reward/mean") traces.push(...data.runs.map((run, i) => evaluations(run, i, stage)));
  return plot(area, traces, {
    xaxis: {
      title: { text: `step of ${stageName}`, standoff: 4 },
      unifiedhovertitle: { text: `step %{x:.4~g} of ${stageName}` },
    },
    yaxis: { title: { text: units.map(escapeMarkup).join(", "), standoff: 4 } },
    ...(stage === undefined ? stageMarks(data.runs) : { shapes: [], annotations: [] }),
  });
}

// A line whose points name their steps; if a point is a mean of many, with a band from min to max.
function lines(series, index, name) {
  const base = { type: "scatter", mode: "lines", x: series.x, name };
  const line = {
    ...base,
    y: series.y,
    customdata: series.at,
    line: { color: seriesColor(index), width: 1.6 },
    hovertemplate: "%{y:.4g} at %{customdata}",
  };
  if (!series.low) return [line];
  const edge = { ...base, line: { width: 0 }, hoverinfo: "skip" };
  return [
    { ...edge, y: series.low },
    { ...edge, y: series.high, fill: "tonexty", fillcolor: `${seriesColor(index)}33` },
    line,
  ];
}

function evaluations(run, index, stage) {
  const span = stage === undefined ? { start: 0, end: Infinity, first: 1 } : spanOf(run, stage);
  const shown = run.evaluations_at.filter((each) => each.x >= span.start && each.x <= span.end);
  const moved = shown.map((each) => ({ ...each, x: each.x - span.start + span.first - 1 }));
  return evaluationTrace(moved, seriesColor(index), escapeMarkup(run.run));
}

// Marks where stages begin. If runs differ in that, each has marks in its colour.
function stageMarks(runs) {
  const begins = runs.map((run) => (run.spans.length > 1 ? run.spans : []));
  const keys = begins.map((spans) => JSON.stringify(spans.map((span) => [span.stage, span.start])));
  const same = new Set(keys).size === 1;
  const shapes = [],
    annotations = [];
  begins.slice(0, same ? 1 : undefined).forEach((spans, i) => {
    const paint = same ? cssColor("quiet") : seriesColor(i);
    for (const span of spans) {
      const x = span.start + 0.5;
      const line = { dash: "dot", width: 1, color: paint };
      if (span.start) shapes.push({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line });
      annotations.push({
        x,
        xanchor: "left",
        xshift: 3,
        yref: "paper",
        y: 0.97 - i * 0.09,
        yanchor: "top",
        text: escapeMarkup(span.stage),
        showarrow: false,
        font: { size: 10, color: paint },
      });
    }
  });
  return { shapes, annotations };
}

function legend(data, series) {
  return h(
    "div",
    { class: "legend" },
    series.map((each, i) => {
      const last = each.y.length ? number(each.y[each.y.length - 1]) : "–";
      return h("span", {}, swatch(i), `${data.runs[i].run} ${last}`);
    }),
  );
}

export function swatch(index) {
  const line = h("i", { class: "swatch" });
  line.style.background = seriesColor(index);
  return line;
}
