// What stands under a chart: its curves with their last values, and what each number is.
import { h, number } from "./dom.js";
import { paintOf } from "./chart.js";

export function legend(told) {
  if (told.series.length < 2 && !told.series.some((each) => each.low)) return null;
  return h(
    "div",
    { class: "legend" },
    told.series.map((each, index) => {
      const swatch = h("i", {});
      swatch.style.background = paintOf(each, index);
      return h("span", { title: each.name }, swatch, `${each.label} ${number(each.last)}`);
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
  const undrawn = told.series
    .flatMap((each) => [
      [each, each.infinite, "infinite"],
      [each, each.not_above_0, "of 0 or less"],
    ])
    .filter(([, many]) => many)
    .map(([each, many, what]) => ` · ${each.label}: ${many} ${what}, not drawn`)
    .join("");
  return h(
    "details",
    { open: told.definitions.length === 1 },
    h("summary", {}, `definition${many}${undrawn}`),
    h("dl", {}, items),
  );
}
