// All charts of a run, by group: requested when they come into view, zoomed together.
import { h, setChildren } from "./dom.js";
import { get, IS_REPORT, navigate, updateAddress } from "./api.js";
import { atLeastOneStep, stepAt } from "./axes.js";
import { drawChart } from "./chart.js";
import { definitions, legend } from "./chart_notes.js";
import { histogram } from "./ratio_histogram.js";

// The range of steps that charts show, as a function of the run, which may grow; null is the whole run.
// A stage's range begins with the evaluation before it, which lies at the last step of the previous stage.
function stageRange(stage) {
  return (data) => {
    const span = data.spans.find((each) => each.stage === stage);
    return span ? [span.start - 0.2, span.end + 0.5, span.start + 1] : null;
  };
}

export function lastStageRange(data) {
  return data.spans.length ? stageRange(data.spans[data.spans.length - 1].stage)(data) : null;
}

// Charts are requested when they come into view, and again when the run grows or the user zooms.
//   now: returns the current data of the run; seen.range: the range that is shown.
export function chartGroups(element, currentData, seen) {
  const data = currentData(),
    drawn = [];
  const show = (range) => {
    seen.range = range;
    const to = range(currentData());
    updateAddress({ from: to && (to[2] || Math.max(1, Math.floor(to[0]))), to: to && Math.ceil(to[1]) });
    for (const each of drawn) each.show();
  };
  const zoom = (to) => {
    const chosen = to && atLeastOneStep(to);
    show(() => chosen);
  };
  const click = (x) => {
    const at = stepAt(x, currentData().spans);
    if (at) navigate("step", { run: data.run, ...at });
  };
  const stages = [
    ["whole run", () => null],
    ...data.spans.map((each) => [each.stage, stageRange(each.stage)]),
  ];
  const buttons =
    data.spans.length > 1
      ? stages.map(([name, range]) => h("button", { onclick: () => show(range) }, name))
      : [];
  element.append(
    h(
      "p",
      { class: "row", role: "group", "aria-label": "chart range" },
      buttons,
      h("span", { class: "quiet" }, "click: open the step · drag: zoom · double-click: zoom out"),
    ),
  );
  for (const group of data.rooms) {
    const grid = h("div", { class: "charts" });
    element.append(
      h("h2", { "data-jump": group.title, tabindex: -1 }, group.title, h("small", {}, group.asks)),
      grid,
    );
    if (group.title === "Policy" && data.ratios) grid.append(ratios(data));
    for (const { name, title } of group.charts) {
      const box = chart(currentData, name, title, { click, zoom }, seen);
      drawn.push(box);
      grid.append(box.element);
    }
  }
  setTimeout(drawOutOfView, 200, drawn);
  return drawn;
}

// Draws the charts that are not in view, one by one, so that a print or a saved page has them all.
async function drawOutOfView(boxes) {
  const idle = () => new Promise((resolve) => (window.requestIdleCallback || setTimeout)(resolve));
  for (const box of boxes) {
    await idle();
    if (!box.element.isConnected) return; // another page is shown
    await box.draw();
  }
}

function chart(currentData, name, title, on, seen) {
  const area = h("div", { class: "plot" });
  const below = h("div", {});
  const element = h("figure", { class: "chart", "aria-label": title }, h("h3", {}, title), area, below);
  let requested = false;
  let answers = 0;
  const show = async () => {
    if (!requested) return;
    const data = currentData(),
      range = seen.range(data),
      mine = ++answers;
    const answer = await get("chart", {
      run: data.run,
      chart: name,
      ...(IS_REPORT || !range
        ? {}
        : { from: range[2] || Math.max(1, Math.floor(range[0])), to: Math.ceil(range[1]) }),
    });
    if (mine !== answers) return; // a newer request is under way
    const points = name === "reward" ? pointsOf(data) : {};
    const drawing = drawChart(area, answer, {
      spans: data.spans,
      limits: limitsOf(data, name),
      ...points,
      on,
      range,
    });
    setChildren(below, ...[legend(answer, points.second), definitions(answer)].filter(Boolean));
    await drawing;
    element.dataset.drawn = "yes";
  };
  const showError = (error) => setChildren(below, h("div", { class: "error" }, error.message));
  const box = {
    element,
    name,
    show: () => show().catch(showError),
    draw: () => {
      if (requested) return;
      requested = true;
      return box.show();
    },
  };
  new IntersectionObserver(
    (found, observer) => {
      if (!found.some((each) => each.isIntersecting)) return;
      observer.disconnect();
      box.draw();
    },
    { rootMargin: "300px" },
  ).observe(element);
  return box;
}

// The points of the reward chart: evaluations, and what a second grader gives their answers.
function pointsOf(data) {
  return { evaluations: data.evaluations_at, second: data.second ? data.second.at : [] };
}

// Limits of a chart: those of the last stage that has any.
function limitsOf(data, name) {
  for (const span of [...data.spans].reverse()) {
    const found = (data.bounds[span.stage] || {})[name];
    if (found) return found;
  }
  return [];
}

function ratios(data) {
  const element = h("figure", { class: "chart" }, h("h3", {}, "Ratios of the last step, by inner epoch"));
  histogram(element, data.ratios, data.ratios.limits);
  return element;
}
