// Axes of charts: steps as their stage counts them, and log axes.

// The number of the step of a row of a stage; in a trace steps may lie apart.
export function numberAt(span, row) {
  return span.numbers ? span.numbers[Math.round(row) - span.start] : row - span.start + span.first;
}

// The stage of a step of the run (counted from 1) and its number there; null before the first.
export function stepAt(x, spans) {
  const row = Math.round(x) - 1;
  const span = spans.findLast((each) => row >= each.start);
  return span ? { stage: span.stage, step: numberAt(span, row) } : null;
}

// The same as text; "around" marks a point that is a mean of many steps.
export function stepLabel(x, spans, width = 1) {
  const at = stepAt(x, spans);
  return at ? `${width > 1 ? "around " : ""}${at.stage} ${at.step}` : "before the first step";
}

// Widens a chosen range to at least one whole step.
export function atLeastOneStep([low, high]) {
  const middle = Math.round((low + high) / 2);
  return [Math.min(low, middle - 0.5), Math.max(high, middle + 0.5)];
}

// Rounds up to 1, 2, 5, 10, 20 … (or 0.1, 0.2 …).
function roundUp(least) {
  const ten = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((each) => each * ten).find((each) => each >= least * (1 - 1e-9));
}

export const LETTER = 7; // pixels of a letter, and between two labels
const BETWEEN = 18;

// The axis of steps: ticks at whole steps, labelled with their number in their stage, and with the stage's
// name if several stages are shown. x counts steps of the run.
export function stepTicks(spans, [low, high, first = low], width) {
  const seen = spans
    .map((span) => ({
      ...span,
      from: Math.max(span.start + 1, Math.ceil(first)),
      to: Math.min(span.end, Math.floor(high)),
    }))
    .filter((each) => each.from <= each.to);
  const alone = seen.length === 1;
  const number = (x, span) => numberAt(span, x - 1);
  const label = (x, span) => (alone ? "" : `${span.stage} `) + number(x, span);
  const letters = Math.max(1, ...seen.map((each) => label(each.to, each).length));
  const apart = ((letters * LETTER + BETWEEN) / width) * (high - low);
  const step = Math.max(1, roundUp(apart));
  const ticks = [];
  for (const span of seen) {
    const all = [];
    if (span.numbers) for (let x = span.from; x <= span.to; x += step) all.push(x);
    else
      for (let n = Math.ceil(number(span.from, span) / step) * step; n <= number(span.to, span); n += step)
        all.push(n + 1 + span.start - span.first);
    if (alone && number(span.from, span) === 1) all.unshift(span.from);
    ticks.push(...(all.length ? all : [span.to]).map((x) => ({ x, text: label(x, span) })));
  }
  const kept = [];
  for (const tick of ticks.reverse())
    if (!kept.length || kept[0].x - tick.x > 0.75 * apart) kept.unshift(tick);
  return {
    range: [low, high],
    tickmode: "array",
    tickvals: kept.map((each) => each.x),
    ticktext: kept.map((each) => each.text),
    zeroline: false,
    overhang: Math.max(10, (letters * LETTER) / 2), // pixels of a label beyond the end of the axis
    title: alone ? `step of ${seen[0].stage}` : "step",
  };
}

const MOST = 6; // labels that fit on an axis

// Ticks of a log axis: at 1, 2, 5 of each decade; at decades if these are too many; at even steps if the axis
// spans less than a decade.
export function logTicks(low, high) {
  const decades = [];
  for (let each = Math.floor(Math.log10(low)); each <= Math.log10(high); each++) decades.push(each);
  const inside = (all) => all.filter((each) => low <= each.at && each.at <= high);
  const power = (much, exponent) => ({
    at: Number(`${much}e${exponent}`),
    text: formatPower(much, exponent, 0),
  });
  const fine = inside(decades.flatMap((each) => [1, 2, 5].map((much) => power(much, each))));
  if (fine.length < 3) return evenTicks(low, high);
  if (fine.length <= MOST) return fine;
  const coarse = inside(decades.map((each) => power(1, each)));
  return coarse.filter((_, i) => i % Math.ceil(coarse.length / MOST) === 0);
}

function evenTicks(low, high) {
  const step = roundUp((high - low) / (MOST - 1));
  const exponent = Math.floor(Math.log10(high));
  const digits = Math.max(0, exponent - Math.floor(Math.log10(step) + 1e-9));
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++)
    found.push({ at: i * step, text: formatPower((i * step) / 10 ** exponent, exponent, digits) });
  return found;
}

// A number as an axis label: 0.002, 50, 2×10⁻⁶.
function formatPower(much, exponent, digits) {
  if (exponent >= -4 && exponent < 5)
    return Number(`${much}e${exponent}`).toFixed(Math.max(0, digits - exponent));
  const power = `10${[...String(exponent)].map((each) => SMALL[each]).join("")}`;
  const text = much.toFixed(digits);
  return text === "1" ? power : `${text}×${power}`;
}

const SMALL = {
  "-": "⁻",
  0: "⁰",
  1: "¹",
  2: "²",
  3: "³",
  4: "⁴",
  5: "⁵",
  6: "⁶",
  7: "⁷",
  8: "⁸",
  9: "⁹",
};

// A log axis that shows all given numbers (above 0), with a margin for labels.
export function logAxis(values) {
  const ends = [Math.min, Math.max].map((end) => Math.log10(values.reduce((a, b) => end(a, b))));
  const margin = ends[1] - ends[0] > 1e-9 ? (ends[1] - ends[0]) / 8 : 0.05;
  const range = [ends[0] - margin, ends[1] + margin];
  const ticks = logTicks(...range.map((each) => 10 ** each));
  return {
    type: "log",
    range,
    tickmode: "array",
    tickvals: ticks.map((each) => each.at),
    ticktext: ticks.map((each) => each.text),
  };
}
