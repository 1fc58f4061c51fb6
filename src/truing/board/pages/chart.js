// Charts: Plotly draws them, the words around them are ours. Names come from runs, so they are inert here too.
import { h, number, visible } from "./dom.js";

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

function paintOf(series, index) {
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
    xaxis: { ...axis, ...xaxis },
    yaxis: { ...axis, ...yaxis },
    ...rest,
  };
}

const SHOWN = {
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

// A number with an update of the run in words: 57 is "grpo 17".
export function place(x, spans) {
  const row = Math.round(x) - 1;
  const span = spans.find((each) => row >= each.start && row < each.end) || spans[spans.length - 1];
  return span ? { stage: span.stage, update: row - span.start + span.first } : null;
}

function named(x, spans) {
  const at = place(x, spans);
  return at ? `${at.stage} ${at.update}` : String(x);
}

function lines(series, index, stacked, spans) {
  const paint = paintOf(series, index);
  const at = series.x.map((x) => [Math.round(x), inert(named(x, spans))]);
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

// A chart of a run.
//   told: the view `chart`; spans: stages; limits: numbers that the recipe compares with;
//   evaluations: points with bars; on: what a click on an update, and a zoom, do.
export function draw(element, told, { spans, limits = [], evaluations = [], on = {}, range }) {
  const traces = told.series.flatMap((series, index) => lines(series, index, told.shape === "stack", spans));
  if (evaluations.length) {
    traces.push({
      type: "scatter",
      mode: "markers",
      x: evaluations.map((each) => each.x),
      y: evaluations.map((each) => each.mean),
      error_y: {
        array: evaluations.map((each) => (each.high === null ? null : each.high - each.mean)),
        arrayminus: evaluations.map((each) => (each.low === null ? null : each.mean - each.low)),
        thickness: 1.5,
      },
      marker: { size: 8, color: ink("ink"), symbol: "diamond" },
      text: evaluations.map((each) => inert(each.name)),
      hovertemplate: "%{text}: %{y:.3f}",
      name: "evaluation",
      cliponaxis: false,
    });
  }
  const shapes = spans.slice(1).map((span) => ({
    type: "line",
    x0: span.start + 0.5,
    x1: span.start + 0.5,
    yref: "paper",
    y0: 0,
    y1: 1,
    line: { dash: "dot", width: 1, color: ink("quiet") },
  }));
  for (const each of limits)
    shapes.push({
      type: "line",
      xref: "paper",
      x0: 0,
      x1: 1,
      y0: each.y,
      y1: each.y,
      line: { dash: "dash", width: 1.2, color: ink("red") },
    });
  const annotations = limits.map((each) => ({
    xref: "paper",
    x: 1,
    xanchor: "right",
    y: told.log ? Math.log10(each.y) : each.y,
    yanchor: "bottom",
    text: inert(each.label),
    showarrow: false,
    font: { size: 10, color: ink("red") },
  }));
  for (const span of spans.length > 1 ? spans : [])
    annotations.push({
      x: span.start + 0.5,
      xanchor: "left",
      xshift: 3,
      yref: "paper",
      y: 0.97,
      yanchor: "top",
      text: inert(span.stage),
      showarrow: false,
      font: { size: 10, color: ink("quiet") },
    });
  const last = spans.length ? spans[spans.length - 1].end : 1;
  plot(element, traces, {
    xaxis: {
      range: range ? range.slice(0, 2) : [evaluations.length ? -0.2 : 0.5, last + 0.5],
      title: { text: "update of the run", standoff: 4 },
    },
    yaxis: {
      type: told.log ? "log" : "linear",
      title: { text: told.units.map(inert).join(", "), standoff: 4 },
    },
    shapes,
    annotations,
  }).then(() => listen(element, on));
}

function listen(element, on) {
  element.removeAllListeners("plotly_click");
  element.removeAllListeners("plotly_relayout");
  if (on.click)
    element.on("plotly_click", (event) => {
      const point = event.points.find((each) => each.customdata);
      if (point) on.click(point.customdata[0]);
    });
  if (on.zoom)
    element.on("plotly_relayout", (event) => {
      if ("xaxis.range[0]" in event) on.zoom([event["xaxis.range[0]"], event["xaxis.range[1]"]]);
      else if (event["xaxis.autorange"]) on.zoom(null);
    });
}

export function legend(told) {
  if (told.series.length < 2 && !told.series.some((each) => each.low)) return null;
  return h(
    "div",
    { class: "legend" },
    told.series.map((each, index) => {
      const swatch = h("i", {});
      swatch.style.background = paintOf(each, index);
      const last = each.y.length ? number(each.y[each.y.length - 1]) : "–";
      return h("span", { title: each.name }, swatch, `${each.label} ${last}`);
    }),
  );
}

export function definitions(told) {
  const items = told.definitions.map((each) => [
    h("dt", {}, each.name + (each.unit ? ` (${each.unit})` : "")),
    h("dd", {}, each.formula + (each.absent ? ` Absent: ${each.absent}.` : "")),
  ]);
  const width = told.series.find((each) => each.width);
  const many = width
    ? ` · each point is the mean of ${width.width} updates, the band their least and largest`
    : "";
  const infinite = told.series
    .filter((each) => each.infinite)
    .map((each) => ` · ${each.label}: ${each.infinite} infinite, not drawn`)
    .join("");
  return h(
    "details",
    { open: told.definitions.length === 1 },
    h("summary", {}, `definition${many}${infinite}`),
    h("dl", {}, items),
  );
}
