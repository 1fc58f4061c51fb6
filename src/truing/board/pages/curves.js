// The curves of two runs in one chart: over the whole of both, or over a stage, from its own first update on.
import { fill, h, number } from "./dom.js";
import { get } from "./data.js";
import { named } from "./axes.js";
import { colour, diamonds, inert, ink, plot } from "./chart.js";
import { definitions } from "./under.js";

const SHOWN = [
  "reward/mean",
  "entropy/drawn",
  "kl_all/k3",
  "length/mean",
  "grad/norm",
  "group/zero_variance_share",
  "loss/supervised",
  "ratio/std",
];

// All charts of two runs, and how to have more; returns them, so that they can be drawn again.
export function curves(element, told) {
  const grid = h("div", { class: "charts" });
  const boxes = [];
  const shared = told.runs[0].spans
    .map((each) => each.stage)
    .filter((stage) => spanOf(told.runs[1], stage) !== undefined);
  const seen = { stage: shared[shared.length - 1] };
  const add = (name) => {
    const box = chart(told, name, seen);
    boxes.push(box);
    grid.append(box.element);
    box.show();
  };
  const choice = [undefined, ...shared].map((stage) =>
    h(
      "button",
      {
        "aria-pressed": String(stage === seen.stage),
        onclick: (event) => {
          seen.stage = stage;
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
      picker(told, add),
    ),
    grid,
  );
  for (const name of SHOWN.filter((each) => told.numbers.includes(each))) add(name);
  return boxes;
}

function picker(told, add) {
  const choose = (event) => {
    add(event.target.value);
    event.target.value = "";
  };
  const names = ["", ...told.numbers].map((each) => h("option", { value: each }, each));
  return h("label", {}, "one more number", h("select", { onchange: choose }, names));
}

function spanOf(run, stage) {
  return run.spans.find((each) => each.stage === stage);
}

function chart(told, name, seen) {
  const area = h("div", { class: "plot" });
  const below = h("div", {});
  const element = h("figure", { class: "chart", "aria-label": name }, h("h3", {}, name), area, below);
  const asked = Promise.all(told.runs.map((run) => get("number", { run: run.run, number: name })));
  const show = async () => {
    const both = await asked;
    const series = both.map((each, i) => within(each.series[0], told.runs[i], seen.stage));
    area.hidden = !series.some((each) => each.x.length);
    if (!area.hidden) await draw(area, told, name, series, both[0].units, seen.stage);
    fill(
      below,
      area.hidden ? h("p", { class: "quiet" }, `No update of ${seen.stage} has it.`) : legend(told, series),
      definitions({ ...both[0], series: both.flatMap((each) => each.series) }),
    );
    element.dataset.drawn = "yes";
  };
  const box = {
    element,
    show: () => show().catch((error) => fill(below, h("div", { class: "error" }, error.message))),
  };
  return box;
}

// A curve over a stage, from the first update that the record has of it, which is 1 where nothing came before.
function within(series, run, stage) {
  const span = stage === undefined ? { start: 0, end: Infinity, first: 1 } : spanOf(run, stage);
  const kept = series.x.map((_, i) => i).filter((i) => series.x[i] > span.start && series.x[i] <= span.end);
  const of = (values) => values && kept.map((i) => values[i]);
  return {
    at: kept.map((i) => inert(named(series.x[i], run.spans))),
    x: kept.map((i) => series.x[i] - span.start + span.first - 1),
    y: of(series.y),
    low: of(series.low),
    high: of(series.high),
  };
}

function draw(area, told, name, series, units, stage) {
  const of = stage === undefined ? "the run" : inert(stage);
  const traces = series.flatMap((each, i) => lines(each, i, inert(told.runs[i].run)));
  if (name === "reward/mean") traces.push(...told.runs.map((run, i) => evaluations(run, i, stage)));
  return plot(area, traces, {
    xaxis: {
      title: { text: `update of ${of}`, standoff: 4 },
      unifiedhovertitle: { text: `update %{x:.4~g} of ${of}` },
    },
    yaxis: { title: { text: units.map(inert).join(", "), standoff: 4 } },
    ...(stage === undefined ? marks(told.runs) : { shapes: [], annotations: [] }),
  });
}

// A line whose points say which update they are, and where each is of many, the band of their least and largest.
function lines(series, index, name) {
  const base = { type: "scatter", mode: "lines", x: series.x, name };
  const line = {
    ...base,
    y: series.y,
    customdata: series.at,
    line: { color: colour(index), width: 1.6 },
    hovertemplate: "%{y:.4g} at %{customdata}",
  };
  if (!series.low) return [line];
  const edge = { ...base, line: { width: 0 }, hoverinfo: "skip" };
  return [
    { ...edge, y: series.low },
    { ...edge, y: series.high, fill: "tonexty", fillcolor: `${colour(index)}33` },
    line,
  ];
}

function evaluations(run, index, stage) {
  const span = stage === undefined ? { start: 0, end: Infinity, first: 1 } : spanOf(run, stage);
  const shown = run.evaluations_at.filter((each) => each.x >= span.start && each.x <= span.end);
  const moved = shown.map((each) => ({ ...each, x: each.x - span.start + span.first - 1 }));
  return diamonds(moved, colour(index), inert(run.run));
}

// Where stages begin. Runs whose stages begin at other updates have marks of their own, in their colours.
function marks(runs) {
  const begins = runs.map((run) => (run.spans.length > 1 ? run.spans : []));
  const told = begins.map((spans) => JSON.stringify(spans.map((span) => [span.stage, span.start])));
  const same = told[0] === told[1];
  const shapes = [],
    annotations = [];
  begins.slice(0, same ? 1 : 2).forEach((spans, i) => {
    const paint = same ? ink("quiet") : colour(i);
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
        text: inert(span.stage),
        showarrow: false,
        font: { size: 10, color: paint },
      });
    }
  });
  return { shapes, annotations };
}

function legend(told, series) {
  return h(
    "div",
    { class: "legend" },
    series.map((each, i) => {
      const last = each.y.length ? number(each.y[each.y.length - 1]) : "–";
      return h("span", {}, swatch(i), `${told.runs[i].run} ${last}`);
    }),
  );
}

export function swatch(index) {
  const line = h("i", { class: "swatch" });
  line.style.background = colour(index);
  return line;
}
