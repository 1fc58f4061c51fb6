// Charts: Plotly draws them, the words around them are ours. Names come from runs, so they are inert here too.
import { LETTER, logAxis, named, updates } from "./axes.js";
import { basis, visible } from "./dom.js";

const COLOURS = [
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

export function colour(index) {
  return COLOURS[index % COLOURS.length];
}

// Tokens have the colours that they have in the x-ray.
const ORIGINS = ["prompt", "template", "tool", "forced", "sampled", "demo"];

export function paintOf(series, index) {
  return series.name.startsWith("tokens/origin_share/") && ORIGINS.includes(series.label)
    ? ink(series.label)
    : colour(index);
}

export function inert(text) {
  return visible(String(text))
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;")
    .replace(/>/g, "&gt;")
    .replace(/%\{/g, "%&#123;");
}

export function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function layout(more) {
  const axis = {
    gridcolor: ink("line"),
    zerolinecolor: ink("line"),
    linecolor: ink("line"),
    automargin: true,
  };
  const { xaxis, yaxis, ...rest } = more;
  return {
    margin: { l: 44, r: 10, t: 6, b: 30 },
    showlegend: false,
    hovermode: "x unified",
    dragmode: "zoom",
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink("quiet"), size: 11 },
    hoverlabel: { bgcolor: ink("panel"), font: { color: ink("ink"), size: 11 }, align: "left" },
    xaxis: { ...axis, spikecolor: ink("quiet"), spikethickness: 1, ...xaxis },
    yaxis: { ...axis, ...yaxis },
    ...rest,
  };
}

const SHOWN = {
  doubleClick: "autosize", // to all that there is, and not to what the page was opened with
  displaylogo: false,
  responsive: true,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  displayModeBar: false,
};

// Its script is large and comes beside the page: charts wait for it, words do not.
function loaded() {
  if (window.Plotly) return null;
  return new Promise((resolve, reject) => {
    const script = document.getElementById("plotly");
    script.addEventListener("load", resolve);
    script.addEventListener("error", () => reject(new Error("The script of the charts did not come.")));
  });
}

// Plotly reads the size of an element, so that one which is not in the page yet has to wait.
export async function plot(element, traces, more) {
  await loaded();
  while (!element.isConnected) await new Promise(requestAnimationFrame);
  return window.Plotly.react(element, traces, layout(more), SHOWN);
}

function lines(series, index, stacked) {
  const paint = paintOf(series, index);
  const at = series.x.map((x) => [Math.round(x)]);
  const base = {
    type: "scatter",
    mode: "lines",
    x: series.x,
    name: inert(series.label),
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

// Evaluations as points, with bars where an interval is known.
export function diamonds(evaluations, paint, name) {
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
    text: evaluations.map((each) => inert([each.name, basis(each)].filter(Boolean).join(", "))),
    hovertemplate: "%{y:.3f}, %{text}",
    name,
    cliponaxis: false,
  };
}

// A chart of a run.
//   told: the view `chart`; spans: stages; limits: numbers that the recipe compares with;
//   evaluations: points with bars; on: what a click on an update, and a zoom, do.
// Returns when it is drawn.
export function draw(element, told, { spans, limits: all = [], evaluations = [], on = {}, range }) {
  const limits = all.filter((each) => !told.log || each.y > 0).sort((a, b) => a.y - b.y);
  const traces = told.series.flatMap((series, index) => lines(series, index, told.shape === "stack"));
  if (evaluations.length) traces.push(diamonds(evaluations, ink("ink"), "evaluation"));
  const shapes = spans.slice(1).map((span) => ({
    type: "line",
    x0: span.start + 0.5,
    x1: span.start + 0.5,
    yref: "paper",
    y0: 0,
    y1: 1,
    line: { dash: "dot", width: 1, color: ink("quiet") },
  }));
  shapes.push(...limits.map(across));
  const last = spans.length ? spans[spans.length - 1].end : 1;
  const shown = range || [evaluations.length ? -0.2 : 0.5, last + 0.5];
  const values = seen(told.series, limits, shown);
  const width = Math.max(...told.series.map((each) => each.width || 1));
  const room = element.clientWidth - MARGINS;
  const { xaxis, overhang } = updateAxis(spans, shown, room);
  return plot(element, traces, {
    margin: { l: 44, r: overhang, t: spans.length > 1 ? 16 : 8, b: 30 },
    xaxis,
    yaxis: {
      ...(told.log && values.length ? logAxis(values) : { type: "linear" }),
      rangemode: values.some((each) => each < 0) ? "normal" : "nonnegative",
      title: { text: told.units.map(inert).join(", "), standoff: 4 },
      fixedrange: true, // a drag is over updates, on all charts
    },
    shapes,
    annotations: [
      ...limits.map((each, i) => beside(each, i, limits.length, told.log)),
      ...(spans.length > 1 ? spans.map((each) => above(each, shown, room)) : []),
    ],
  }).then(() => listen(element, on, (x) => named(x, spans, width)));
}

const MARGINS = 70; // pixels of a chart that are not its axis

function updateAxis(spans, shown, width) {
  const { title, ticktext, overhang, ...axis } = updates(spans, shown, width);
  const xaxis = {
    ...axis,
    ticktext: ticktext.map(inert),
    title: { text: inert(title), standoff: 4 },
    unifiedhovertitle: { text: "update %{x} of the run" }, // which `listen` puts in words
  };
  return { xaxis, overhang };
}

// The name of a stage stands over where it begins, and is moved to the left where it would be cut off.
function above(span, [low, high], width) {
  const name = ((span.stage.length * LETTER) / width) * (high - low);
  return {
    x: Math.min(span.start + 0.5, Math.max(low, high - name)),
    xanchor: "left",
    yref: "paper",
    y: 1,
    yanchor: "bottom",
    text: inert(span.stage),
    showarrow: false,
    font: { size: 10, color: ink("quiet") },
  };
}

// What a log axis has to have place for: numbers of the updates that are shown, and those they are compared with.
function seen(series, limits, [low, high]) {
  return [
    ...series.flatMap((each) =>
      [each.y, each.low || [], each.high || []].flatMap((all) =>
        all.filter((_, i) => low <= each.x[i] && each.x[i] <= high),
      ),
    ),
    ...limits.map((each) => each.y),
  ];
}

function across(limit) {
  const line = { dash: "dash", width: 1.2, color: ink("red") };
  return { type: "line", xref: "paper", x0: 0, x1: 1, y0: limit.y, y1: limit.y, line };
}

// The name of a limit stands over its line, that of the least of several below its own, and any between on the
// left: so none lies on another, however near they are.
function beside(limit, index, many, log) {
  const side = index === 0 || index === many - 1 ? "right" : "left";
  return {
    xref: "paper",
    x: side === "right" ? 1 : 0,
    xanchor: side,
    y: log ? Math.log10(limit.y) : limit.y,
    yanchor: many > 1 && index === 0 ? "top" : "bottom",
    text: inert(limit.label),
    showarrow: false,
    font: { size: 10, color: ink("red") },
    yshift: many > 1 && index === 0 ? -1 : 1,
  };
}

// Plotly names what is under the mouse by a number alone: here it is put in words.
function name(element, says) {
  const title = element.querySelector(".hoverlayer .legendtitletext");
  const found = title && /^update (\d.*|0) of the run$/.exec(title.textContent);
  if (found) title.textContent = visible(says(Number(found[1])));
}

const namers = new WeakMap();
const DOUBLE = 300; // milliseconds in which two clicks are one double-click

function listen(element, on, says) {
  namers.get(element)?.disconnect();
  const namer = new window.MutationObserver(() => name(element, says));
  namer.observe(element.querySelector(".hoverlayer"), { childList: true, subtree: true });
  namers.set(element, namer);
  element.removeAllListeners("plotly_click");
  element.removeAllListeners("plotly_relayout");
  if (on.click) {
    let opening = 0;
    element.on("plotly_click", (event) => {
      window.clearTimeout(opening); // the second click of two zooms out, and opens nothing
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
