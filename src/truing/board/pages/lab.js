// A lab: hypotheses with their status, effects with their bounds, arms with their runs.
import { fill, h, link, number, table, verdict } from "./dom.js";
import { address, get } from "./data.js";
import { ink, plot } from "./chart.js";

const MEANS = {
  VALIDATED: "pass",
  "PARTIALLY VALIDATED": "pass",
  INVALIDATED: "fail",
  INCONCLUSIVE: "SUSPECT",
  TESTING: "fact",
  PENDING: "not",
};

export async function lab(page, query, context) {
  const told = await get("lab", { lab: query.lab });
  const rows = told.hypotheses.map((each) =>
    h(
      "tr",
      { class: "to" },
      h(
        "td",
        {},
        link(address("hypothesis", { lab: query.lab, hypothesis: each.hypothesis }), each.hypothesis),
      ),
      h("td", { class: "wrap" }, h("b", {}, each.title), h("div", { class: "quiet" }, each.claim)),
      h("td", {}, verdict(MEANS[each.verdict], each.verdict)),
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
  const drawn = told.effects.data ? [figure(told.effects)] : [];
  context.keep(() => drawn);
  fill(
    page,
    h("h1", {}, told.name),
    table(
      [
        [""],
        ["hypothesis"],
        ["status"],
        ["because"],
        ["effect", "number"],
        ["pairs", "number"],
        ["evidence"],
      ],
      rows,
    ),
    drawn.length
      ? drawn.map((each) => each.element)
      : h("p", { class: "quiet" }, "No effect is known yet: truing lab plan says what to do next."),
  );
}

export async function hypothesis(page, query, context) {
  const told = await get("hypothesis", { lab: query.lab, hypothesis: query.hypothesis });
  const drawn = told.figures.map(figure);
  context.keep(() => drawn);
  fill(
    page,
    h("p", { class: "crumbs" }, link(address("lab", { lab: query.lab }), query.lab)),
    h("h1", {}, `${query.hypothesis} ${told.title}`),
    h("p", {}, verdict(MEANS[told.verdict], told.verdict)),
    h("p", {}, told.claim),
    h("pre", {}, told.lines.join("\n")),
    h(
      "div",
      { class: "charts" },
      drawn.map((each) => each.element),
    ),
    told.runs.length
      ? [
          h("h2", {}, "Runs"),
          table(
            [["arm"], ["seed", "number"], ["outcome"], [told.metric, "number"], [""]],
            told.runs.map((each) =>
              h(
                "tr",
                {},
                h("td", {}, each.arm),
                h("td", { class: "number" }, each.seed),
                h("td", {}, verdict(each.outcome === "finished" ? "pass" : "fail", each.outcome)),
                h("td", { class: "number" }, number(each.value)),
                h("td", { class: "wrap quiet" }, each.error),
              ),
            ),
          ),
        ]
      : null,
    h("details", { class: "gap" }, h("summary", {}, "its file"), h("pre", {}, told.text)),
  );
}

const TICKS = 12;

// A figure of the lab, in the colours of the page; updates count from 1.
function figure(told) {
  const area = h("div", {});
  const { title, xaxis, shapes, height = 300, ...rest } = told.layout;
  area.style.height = `${height}px`;
  const data = told.data.map((each) => (each.x ? each : { ...each, x0: 1 }));
  const seeds = data.flatMap((each) => each.x || []);
  const axis = { ...xaxis };
  if (axis.dtick) axis.dtick = Math.max(1, Math.ceil((Math.max(...seeds) - Math.min(...seeds)) / TICKS));
  const show = () =>
    plot(area, data, {
      ...rest,
      xaxis: axis,
      shapes: (shapes || []).map((each) => ({ ...each, line: { ...each.line, color: ink("quiet") } })),
      showlegend: true,
      hovermode: "closest",
      legend: { orientation: "h", y: -0.25 },
    });
  show();
  return { show, element: h("figure", { class: "chart gap" }, h("h3", {}, title ? title.text : ""), area) };
}
