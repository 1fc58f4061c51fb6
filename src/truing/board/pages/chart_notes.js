// The notes under a chart: a legend with last values, and definitions of the metrics.
import { h, number } from "./dom.js";
import { colorOf } from "./chart.js";

export function legend(data) {
  if (data.series.length < 2 && !data.series.some((each) => each.low)) return null;
  return h(
    "div",
    { class: "legend" },
    data.series.map((each, index) => {
      const swatch = h("i", {});
      swatch.style.background = colorOf(each, index);
      return h("span", { title: each.name }, swatch, `${each.label} ${number(each.last)}`);
    }),
  );
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
