// A lab: hypotheses with their status, effects with their intervals, and arms with their runs.
import { h, link, number, setChildren, table, verdictBadge } from "./dom.js";
import { address, get } from "./api.js";
import { cssColor, plot } from "./chart.js";

const VERDICT_CLASS = {
  VALIDATED: "pass",
  "PARTIALLY VALIDATED": "pass",
  INVALIDATED: "fail",
  INCONCLUSIVE: "SUSPECT",
  TESTING: "fact",
  PENDING: "not",
};

export async function lab(page, query, context) {
  const data = await get("lab", { lab: query.lab });
  const rows = data.hypotheses.map((each) =>
    h(
      "tr",
      { class: "to" },
      h(
        "td",
        {},
        link(address("hypothesis", { lab: query.lab, hypothesis: each.hypothesis }), each.hypothesis),
      ),
      h("td", { class: "wrap" }, h("b", {}, each.title), h("div", { class: "quiet" }, each.claim)),
      h("td", {}, verdictBadge(VERDICT_CLASS[each.verdict], each.verdict)),
      h("td", { class: "wrap" }, each.because),
      h(
        "td",
        { class: "number" },
        each.effect === null
          ? "–"
          : `${number(each.effect, 3)} [${number(each.low, 3)}, ${number(each.high, 3)}]`,
      ),
      h("td", { class: "number" }, each.pairs || "–"),
      h("td", {}, each.quality),
    ),
  );
  const drawn = data.effects.data ? [figure(data.effects)] : [];
  context.charts(() => drawn);
  setChildren(
    page,
    h("h1", {}, data.name),
    table(
      [[""], ["hypothesis"], ["status"], ["reason"], ["effect", "number"], ["pairs", "number"], ["evidence"]],
      rows,
    ),
    drawn.length
      ? drawn.map((each) => each.element)
      : h("p", { class: "quiet" }, "No effect measured yet; truing lab plan shows the next step."),
  );
}

export async function hypothesis(page, query, context) {
  const data = await get("hypothesis", { lab: query.lab, hypothesis: query.hypothesis });
  const drawn = data.curves.data ? [figure(data.curves)] : [];
  context.charts(() => drawn);
  setChildren(
    page,
    h("p", { class: "crumbs" }, link(address("lab", { lab: query.lab }), query.lab)),
    h("h1", {}, `${query.hypothesis} ${data.title}`),
    h("p", {}, verdictBadge(VERDICT_CLASS[data.verdict], data.verdict)),
    h("p", {}, data.claim),
    h("pre", {}, data.lines.join("\n")),
    h(
      "div",
      { class: "charts" },
      drawn.map((each) => each.element),
    ),
    data.runs.length
      ? [
          h("h2", {}, "Runs"),
          table(
            [["arm"], ["seed", "number"], ["outcome"], [data.metric, "number"], [""]],
            data.runs.map((each) =>
              h(
                "tr",
                {},
                h("td", {}, each.arm),
                h("td", { class: "number" }, each.seed),
                h("td", {}, verdictBadge(each.outcome === "finished" ? "pass" : "fail", each.outcome)),
                h("td", { class: "number" }, number(each.value)),
                h("td", { class: "wrap quiet" }, each.error),
              ),
            ),
          ),
        ]
      : null,
    h("details", { class: "gap" }, h("summary", {}, "Hypothesis file"), h("pre", {}, data.text)),
  );
}

// A figure of the lab in the colours of the page; steps count from 1.
function figure(spec) {
  const area = h("div", {});
  const { title, shapes, height = 300, ...rest } = spec.layout;
  area.style.height = `${height}px`;
  const data = spec.data.map((each) => (each.x ? each : { ...each, x0: 1 }));
  const show = () =>
    plot(area, data, {
      ...rest,
      shapes: (shapes || []).map((each) => ({ ...each, line: { ...each.line, color: cssColor("quiet") } })),
      showlegend: true,
      hovermode: "closest",
      legend: { orientation: "h", y: -0.25 },
    });
  show();
  return { show, element: h("figure", { class: "chart gap" }, h("h3", {}, title ? title.text : ""), area) };
}
