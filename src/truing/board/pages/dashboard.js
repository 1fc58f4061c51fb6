// All charts of a run, room by room: asked for as they come into view, zoomed together.
import { fill, h } from "./dom.js";
import { get, go, IS_REPORT, remember } from "./data.js";
import { place, wide } from "./axes.js";
import { draw } from "./chart.js";
import { definitions, legend } from "./under.js";
import { histogram } from "./ratios.js";

// What charts show: a stretch of updates, as a function of the run, which goes on; null is all of it.
// A stage's own begins with the evaluation before it, which stands where the stage before has its last update.
function of(stage) {
  return (told) => {
    const span = told.spans.find((each) => each.stage === stage);
    return span ? [span.start - 0.2, span.end + 0.5, span.start + 1] : null;
  };
}

export function latest(told) {
  return told.spans.length ? of(told.spans[told.spans.length - 1].stage)(told) : null;
}

// Charts are asked for as they come into view, and again when the run goes on, or somebody zooms.
//   now: tells the run as it is; seen.stretch: what is shown of it.
export function charts(element, now, seen) {
  const told = now(),
    drawn = [];
  const show = (stretch) => {
    seen.stretch = stretch;
    const to = stretch(now());
    remember({ from: to && (to[2] || Math.max(1, Math.floor(to[0]))), to: to && Math.ceil(to[1]) });
    for (const each of drawn) each.show();
  };
  const zoom = (to) => {
    const chosen = to && wide(to);
    show(() => chosen);
  };
  const click = (x) => {
    const at = place(x, now().spans);
    if (at) go("update", { run: told.run, ...at });
  };
  const stages = [["whole run", () => null], ...told.spans.map((each) => [each.stage, of(each.stage)])];
  const buttons =
    told.spans.length > 1
      ? stages.map(([name, stretch]) => h("button", { onclick: () => show(stretch) }, name))
      : [];
  element.append(
    h(
      "p",
      { class: "row", role: "group", "aria-label": "what charts show" },
      buttons,
      h("span", { class: "quiet" }, "click: open the update · drag: zoom · double-click: zoom out"),
    ),
  );
  for (const room of told.rooms) {
    const grid = h("div", { class: "charts" });
    element.append(
      h("h2", { "data-jump": room.title, tabindex: -1 }, room.title, h("small", {}, room.asks)),
      grid,
    );
    if (room.title === "Policy" && told.ratios) grid.append(ratios(told));
    for (const { name, title } of room.charts) {
      const box = chart(now, name, title, { click, zoom }, seen);
      drawn.push(box);
      grid.append(box.element);
    }
  }
  return drawn;
}

function chart(now, name, title, on, seen) {
  const area = h("div", { class: "plot" });
  const below = h("div", {});
  const element = h("figure", { class: "chart", "aria-label": title }, h("h3", {}, title), area, below);
  let asked = false;
  let answers = 0;
  const show = async () => {
    if (!asked) return;
    const told = now(),
      range = seen.stretch(told),
      mine = ++answers;
    const answer = await get("chart", {
      run: told.run,
      chart: name,
      ...(IS_REPORT || !range
        ? {}
        : { from: range[2] || Math.max(1, Math.floor(range[0])), to: Math.ceil(range[1]) }),
    });
    if (mine !== answers) return; // it was asked again since
    const drawing = draw(area, answer, {
      spans: told.spans,
      limits: limitsOf(told, name),
      evaluations: name === "reward" ? told.evaluations_at : [],
      on,
      range,
    });
    fill(below, ...[legend(answer), definitions(answer)].filter(Boolean));
    await drawing;
    element.dataset.drawn = "yes";
  };
  const trouble = (error) => fill(below, h("div", { class: "error" }, error.message));
  const box = { element, name, show: () => show().catch(trouble) };
  new IntersectionObserver(
    (found, observer) => {
      if (!found.some((each) => each.isIntersecting)) return;
      observer.disconnect();
      asked = true;
      box.show();
    },
    { rootMargin: "300px" },
  ).observe(element);
  return box;
}

// Stages may compare with other numbers; a chart shows those of the last one that has any.
function limitsOf(told, name) {
  for (const span of [...told.spans].reverse()) {
    const found = (told.bounds[span.stage] || {})[name];
    if (found) return found;
  }
  return [];
}

function ratios(told) {
  const element = h("figure", { class: "chart" }, h("h3", {}, "Ratios of the last update, by inner epoch"));
  histogram(element, told.ratios, told.ratios.limits);
  return element;
}
