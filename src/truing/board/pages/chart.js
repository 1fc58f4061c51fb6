// Draws charts with Plotly. Names come from runs, so their markup is escaped here too.
import { LETTER, logAxis, stepLabel, stepTicks } from "./axes.js";
import { escapeInvisible, sampleSize } from "./dom.js";

const SERIES_COLORS = [
  "#2f74c9",
  "#d9822b",
  "#2e9e5b",
  "#b0413e",
  "#8458b3",
  "#1b9aaa",
  "#a0722a",
  "#d0569b",
  "#6b7a90",
  "#7aa62b",
  "#4c5fd5",
  "#c4504d",
  "#3d8f7e",
];

export function seriesColor(index) {
  return SERIES_COLORS[index % SERIES_COLORS.length];
}

// Token origins have the same colours as in the token view.
const ORIGINS = ["prompt", "template", "tool", "forced", "sampled", "demo"];

export function colorOf(series, index) {
  return series.name.startsWith("tokens/origin_share/") && ORIGINS.includes(series.label)
    ? cssColor(series.label)
    : seriesColor(index);
}

export function escapeMarkup(text) {
  return escapeInvisible(String(text))
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;")
    .replace(/>/g, "&gt;")
    .replace(/%\{/g, "%&#123;");
}

export function cssColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function layout(more) {
  const axis = {
    gridcolor: cssColor("line"),
    zerolinecolor: cssColor("line"),
    linecolor: cssColor("line"),
    automargin: true,
    exponentformat: "e", // 3e-4, as all numbers of the board, and not 300µ
  };
  const { xaxis, yaxis, ...rest } = more;
  return {
    margin: { l: 44, r: 10, t: 6, b: 30 },
    showlegend: false,
    hovermode: "x unified",
    dragmode: "zoom",
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: cssColor("quiet"), size: 11 },
    hoverlabel: { bgcolor: cssColor("panel"), font: { color: cssColor("ink"), size: 11 }, align: "left" },
    xaxis: { ...axis, spikecolor: cssColor("quiet"), spikethickness: 1, ...xaxis },
    yaxis: { ...axis, ...yaxis },
    ...rest,
  };
}

const PLOT_OPTIONS = {
  doubleClick: "autosize", // to all data, not to the range that the page opened with
  displaylogo: false,
  responsive: true,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  displayModeBar: false,
};

// The Plotly script is large and loads separately: charts wait for it, text does not.
function loaded() {
  if (window.Plotly) return null;
  return new Promise((resolve, reject) => {
    const script = document.getElementById("plotly");
    script.addEventListener("load", resolve);
    script.addEventListener("error", () => reject(new Error("The chart script did not load.")));
  });
}

// Plotly reads the size of an element, so the element must be in the page first.
export async function plot(element, traces, more) {
  await loaded();
  while (!element.isConnected) await new Promise(requestAnimationFrame);
  return window.Plotly.react(element, traces, layout(more), PLOT_OPTIONS);
}

function lines(series, index, stacked) {
  const paint = colorOf(series, index);
  const at = series.x.map((x) => [Math.round(x)]);
  const base = {
    type: "scatter",
    mode: "lines",
    x: series.x,
    name: escapeMarkup(series.label),
    hovertemplate: "%{y:.4g}",
  };
  if (stacked)
    return [
      {
        ...base,
        y: series.y,
        customdata: at,
        stackgroup: "all",
        line: { width: 0.5, color: paint },
        fillcolor: paint,
      },
    ];
  const line = {
    ...base,
    y: series.y,
    customdata: at,
    line: { color: paint, width: 1.6 },
    connectgaps: false,
  };
  if (series.x.length < 40) Object.assign(line, { mode: "lines+markers", marker: { size: 4, color: paint } });
  if (series.name.includes("/null_")) Object.assign(line, { fill: "tozeroy", fillcolor: `${paint}22` }); // a band of noise
  if (!series.low) return [line];
  const edge = { ...base, line: { width: 0 }, hoverinfo: "skip", hovertemplate: undefined };
  return [
    { ...edge, y: series.low, customdata: series.low_at.map((x) => [x]) },
    {
      ...edge,
      y: series.high,
      customdata: series.high_at.map((x) => [x]),
      fill: "tonexty",
      fillcolor: `${paint}33`,
    },
    line,
  ];
}

// Evaluations as points, with error bars if an interval is known.
export function evaluationTrace(evaluations, paint, name) {
  return {
    type: "scatter",
    mode: "markers",
    x: evaluations.map((each) => each.x),
    y: evaluations.map((each) => each.mean),
    error_y: {
      array: evaluations.map((each) => (each.high === null ? null : each.high - each.mean)),
      arrayminus: evaluations.map((each) => (each.low === null ? null : each.mean - each.low)),
      thickness: 1.5,
    },
    marker: { size: 8, color: paint, symbol: "diamond" },
    text: evaluations.map((each) => escapeMarkup([each.name, sampleSize(each)].filter(Boolean).join(", "))),
    hovertemplate: "%{y:.3f}, %{text}",
    name: name,
    cliponaxis: false,
  };
}

export const SECOND_COLOR = SERIES_COLORS[1];

// What a second grader gives the answers of evaluations.
function secondTrace(second) {
  const trace = evaluationTrace(second, SECOND_COLOR, "second grader");
  return { ...trace, mode: "lines+markers", line: { color: SECOND_COLOR, dash: "dot", width: 1.6 } };
}

// A chart of a run.
//   data: the view `chart`; spans: stages; limits: numbers that the recipe compares with;
//   evaluations, second: points with error bars, the latter by a second grader; on: handlers of a click on a step and of a zoom.
// Resolves when it is drawn.
export function drawChart(
  element,
  data,
  { spans, limits: all = [], evaluations = [], second = [], on = {}, range },
) {
  const limits = all.filter((each) => !data.log || each.y > 0).sort((a, b) => a.y - b.y);
  const traces = data.series.flatMap((series, index) => lines(series, index, data.shape === "stack"));
  if (evaluations.length) traces.push(evaluationTrace(evaluations, cssColor("ink"), "evaluation"));
  if (second.length) traces.push(secondTrace(second));
  const shapes = spans.slice(1).map((span) => ({
    type: "line",
    x0: span.start + 0.5,
    x1: span.start + 0.5,
    yref: "paper",
    y0: 0,
    y1: 1,
    line: { dash: "dot", width: 1, color: cssColor("quiet") },
  }));
  shapes.push(...limits.map(limitLine));
  const last = spans.length ? spans[spans.length - 1].end : 1;
  const shown = range || [evaluations.length ? -0.2 : 0.5, last + 0.5];
  const values = valuesInRange(data.series, limits, shown);
  const width = Math.max(...data.series.map((each) => each.width || 1));
  const room = element.clientWidth - MARGINS;
  const { xaxis, overhang } = stepAxis(spans, shown, room);
  return plot(element, traces, {
    margin: { l: 44, r: overhang, t: spans.length > 1 ? 16 : 8, b: 30 },
    xaxis,
    yaxis: {
      ...(data.log && values.length ? logAxis(values) : { type: "linear" }),
      rangemode: values.some((each) => each < 0) ? "normal" : "nonnegative",
      title: { text: data.units.map(escapeMarkup).join(", "), standoff: 4 },
      fixedrange: true, // a drag selects steps, on all charts
    },
    shapes,
    annotations: [
      ...limits.map((each, i) => limitLabel(each, i, limits.length, data.log)),
      ...(spans.length > 1 ? spans.map((each) => stageLabel(each, shown, room)) : []),
    ],
  }).then(() => addHandlers(element, on, (x) => stepLabel(x, spans, width)));
}

const MARGINS = 70; // pixels of a chart that are not its axis

function stepAxis(spans, shown, width) {
  const { title, ticktext, overhang, ...axis } = stepTicks(spans, shown, width);
  const xaxis = {
    ...axis,
    ticktext: ticktext.map(escapeMarkup),
    title: { text: escapeMarkup(title), standoff: 4 },
    unifiedhovertitle: { text: "step %{x} of the run" }, // which `addHandlers` replaces by the name of the step
  };
  return { xaxis, overhang };
}

// The name of a stage, above its beginning, shifted left if it would be cut off.
function stageLabel(span, [low, high], width) {
  const nameWidth = ((span.stage.length * LETTER) / width) * (high - low);
  return {
    x: Math.min(span.start + 0.5, Math.max(low, high - nameWidth)),
    xanchor: "left",
    yref: "paper",
    y: 1,
    yanchor: "bottom",
    text: escapeMarkup(span.stage),
    showarrow: false,
    font: { size: 10, color: cssColor("quiet") },
  };
}

// Values that a log axis must show: those of the steps in range, and the limits.
function valuesInRange(series, limits, [low, high]) {
  return [
    ...series.flatMap((each) =>
      [each.y, each.low || [], each.high || []].flatMap((all) =>
        all.filter((_, i) => low <= each.x[i] && each.x[i] <= high),
      ),
    ),
    ...limits.map((each) => each.y),
  ];
}

function limitLine(limit) {
  const line = { dash: "dash", width: 1.2, color: cssColor("red") };
  return { type: "line", xref: "paper", x0: 0, x1: 1, y0: limit.y, y1: limit.y, line };
}

// The name of a limit, above its line; of several, the lowest has it below and those between on the left, so that
// none overlap.
function limitLabel(limit, index, many, log) {
  const side = index === 0 || index === many - 1 ? "right" : "left";
  return {
    xref: "paper",
    x: side === "right" ? 1 : 0,
    xanchor: side,
    y: log ? Math.log10(limit.y) : limit.y,
    yanchor: many > 1 && index === 0 ? "top" : "bottom",
    text: escapeMarkup(limit.label),
    showarrow: false,
    font: { size: 10, color: cssColor("red") },
    yshift: many > 1 && index === 0 ? -1 : 1,
  };
}

// Replaces Plotly's number of the hovered step by its stage and number there.
function setHoverTitle(element, labelOf) {
  const title = element.querySelector(".hoverlayer .legendtitletext");
  const found = title && /^step (\d.*|0) of the run$/.exec(title.textContent);
  if (found) title.textContent = escapeInvisible(labelOf(Number(found[1])));
}

const hoverObservers = new WeakMap();
const DOUBLE = 300; // milliseconds between the clicks of a double-click

function addHandlers(element, on, labelOf) {
  hoverObservers.get(element)?.disconnect();
  const observer = new window.MutationObserver(() => setHoverTitle(element, labelOf));
  observer.observe(element.querySelector(".hoverlayer"), { childList: true, subtree: true });
  hoverObservers.set(element, observer);
  element.removeAllListeners("plotly_click");
  element.removeAllListeners("plotly_relayout");
  if (on.click) {
    let opening = 0;
    element.on("plotly_click", (event) => {
      window.clearTimeout(opening); // a double-click zooms out and opens nothing
      const point = event.points.find((each) => each.customdata);
      if (point && event.event.detail < 2)
        opening = window.setTimeout(() => on.click(point.customdata[0]), DOUBLE);
    });
  }
  if (on.zoom)
    element.on("plotly_relayout", (event) => {
      if ("xaxis.range[0]" in event) on.zoom([event["xaxis.range[0]"], event["xaxis.range[1]"]]);
      else if (event["xaxis.autorange"]) on.zoom(null);
    });
}
