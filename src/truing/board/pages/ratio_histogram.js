// Histograms of the ratios of a step, by inner epoch and sign of the advantage.
import { count, h, number, table } from "./dom.js";
import { logTicks } from "./axes.js";
import { cssColor, escapeMarkup, plot } from "./chart.js";

export function histogram(element, data, limits) {
  data.epochs.forEach((epoch, index) => {
    const area = h("div", { class: "plot" });
    element.append(
      h(
        "div",
        { class: "ratios" },
        h(
          "div",
          { class: "quiet" },
          `inner epoch ${index + 1}: ${count(epoch.scored)} tokens, r of each ${data.level}`,
        ),
        area,
        clipCounts(data.edges, epoch, limits),
      ),
    );
    bars(
      area,
      data.edges,
      [
        { name: "A < 0", counts: epoch.negative, color: "#b0413e" },
        { name: "A = 0", counts: epoch.zero, color: "#8a94a3" },
        { name: "A > 0", counts: epoch.positive, color: "#2e9e5b" },
      ],
      limits,
    );
  });
}

// Counts of tokens below, inside and above the clip range, whose bounds are edges of bins.
function clipCounts(edges, epoch, limits) {
  const [low, high] = limits.map((each) => edges.indexOf(each.y));
  if (!(low >= 0 && high > low)) return null;
  const sum = (counts, from, to) => counts.slice(from, to).reduce((all, each) => all + each, 0);
  const row = (name, counts) =>
    h(
      "tr",
      {},
      h("td", {}, name),
      ...[[0, low + 1], [low + 1, high + 1], [high + 1]].map(([from, to]) =>
        h("td", { class: "number" }, count(sum(counts, from, to))),
      ),
    );
  return table(
    [
      ["tokens"],
      [`r < ${number(edges[low])}`, "number"],
      ["between", "number"],
      [`r > ${number(edges[high])}`, "number"],
    ],
    [row("A > 0", epoch.positive), row("A < 0", epoch.negative), row("A = 0", epoch.zero)],
  );
}

// Bars of one inner epoch by the sign of the advantage, with the clip range.
function bars(element, edges, groups, limits) {
  const logs = edges.map(Math.log);
  const ends = [2 * logs[0] - logs[1], ...logs, 2 * logs[logs.length - 1] - logs[logs.length - 2]];
  const middle = (list) => list.slice(1).map((end, i) => (end + list[i]) / 2);
  const width = ends.slice(1).map((end, i) => end - ends[i]);
  const labels = ends
    .slice(1)
    .map(
      (end, i) =>
        `${i ? Math.exp(ends[i]).toFixed(3) : "0"} to ${i < edges.length ? Math.exp(end).toFixed(3) : "∞"}`,
    );
  const traces = groups.map((each) => ({
    type: "bar",
    x: middle(ends),
    width,
    y: each.counts,
    name: escapeMarkup(each.name),
    customdata: labels,
    marker: { color: each.color, opacity: 0.55 },
    hovertemplate: "%{y} tokens, r %{customdata}",
  }));
  const ticks = [0.37, 0.5, 0.67, 0.8, 1, 1.2, 1.5, 2, 2.7];
  const shapes = limits.map((each) => ({
    type: "line",
    x0: Math.log(each.y),
    x1: Math.log(each.y),
    yref: "paper",
    y0: 0,
    y1: 1,
    line: { dash: "dash", width: 1.2, color: cssColor("red") },
  }));
  const most = Math.max(1, ...groups.flatMap((each) => each.counts));
  const range = [0.7, 1.5 * most]; // a bar of one token stays visible
  const counts = logTicks(...range);
  plot(element, traces, {
    barmode: "overlay",
    shapes,
    hovermode: "closest",
    showlegend: true,
    legend: { orientation: "h", y: 1.18 },
    xaxis: { tickvals: ticks.map(Math.log), ticktext: ticks.map(String), title: { text: "ratio r" } },
    yaxis: {
      type: "log",
      range: range.map(Math.log10),
      tickvals: counts.map((each) => each.at),
      ticktext: counts.map((each) => each.text),
      title: { text: "tokens" },
    },
  });
}
