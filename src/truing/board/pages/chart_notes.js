// The notes under a chart: a legend with last values, and definitions of the metrics.
import { h, number } from "./dom.js";
import { colorOf, SECOND_COLOR } from "./chart.js";

// second: the points by a second grader.
export function legend(data, second = []) {
  if (data.series.length < 2 && !data.series.some((each) => each.low) && !second.length) return null;
  return h(
    "div",
    { class: "legend" },
    data.series.map((each, index) => {
      const swatch = h("i", {});
      swatch.style.background = colorOf(each, index);
      return h("span", { title: each.name }, swatch, `${each.label} ${number(each.last)}`);
    }),
    second.length ? secondMark(second[second.length - 1]) : null,
  );
}

const SECOND_GRADER =
  "Mean reward that eval.grader gives the answers of an evaluation, with its 95 % interval. It pays nothing.";

function secondMark(last) {
  const swatch = h("i", {});
  swatch.style.background = SECOND_COLOR;
  return h("span", { title: SECOND_GRADER }, swatch, `second grader ${number(last.mean)}`);
}

export function definitions(data) {
  const items = data.definitions.map((each) => [
    h("dt", {}, each.name + (each.unit ? ` (${each.unit})` : "")),
    h("dd", {}, each.formula + (each.absent ? ` Absent: ${each.absent}.` : "")),
  ]);
  const width = data.series.find((each) => each.width);
  const many = width ? ` · each point: mean of ${width.width} steps; band: min to max` : "";
  const undrawn = data.series
    .flatMap((each) => [
      [each, each.infinite, "infinite"],
      [each, each.not_above_0, "≤ 0"],
    ])
    .filter(([, many]) => many)
    .map(([each, many, what]) => ` · ${each.label}: ${many} ${what}, not drawn`)
    .join("");
  return h(
    "details",
    { open: data.definitions.length === 1 },
    h("summary", {}, `definition${many}${undrawn}`),
    h("dl", {}, items),
  );
}
