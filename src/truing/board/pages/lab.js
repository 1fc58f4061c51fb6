// A lab: hypotheses with their status, effects with their bounds, arms with their runs.
import { fill, h, link, number, table, verdict } from "./dom.js";
import { address, get } from "./data.js";
import { plot } from "./chart.js";

const MEANS = {
  VALIDATED: "pass",
  "PARTIALLY VALIDATED": "pass",
  INVALIDATED: "fail",
  INCONCLUSIVE: "SUSPECT",
  TESTING: "fact",
  PENDING: "not",
};

export async function lab(page, query) {
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
      h("td", {}, h("span", { class: `verdict ${MEANS[each.verdict]}` }, each.verdict)),
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
    told.effects.data
      ? figure(told.effects)
      : h("p", { class: "quiet" }, "No effect is known yet: truing lab plan says what to do next."),
  );
}

export async function hypothesis(page, query) {
  const told = await get("hypothesis", { lab: query.lab, hypothesis: query.hypothesis });
  fill(
    page,
    h("p", { class: "crumbs" }, link(address("lab", { lab: query.lab }), query.lab)),
    h("h1", {}, told.title),
    h("p", {}, told.claim),
    h("pre", {}, told.lines.join("\n")),
    h("div", { class: "charts" }, told.figures.map(figure)),
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

function figure(told) {
  const area = h("div", {});
  area.style.height = `${told.layout.height || 300}px`;
  plot(area, told.data, {
    ...told.layout,
    title: undefined,
    showlegend: true,
    hovermode: "closest",
    legend: { orientation: "h", y: -0.25 },
  });
  return h("figure", { class: "chart" }, h("h3", {}, told.layout.title ? told.layout.title.text : ""), area);
}
