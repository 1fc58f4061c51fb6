// Creates elements and formats numbers and text. Text goes into the page as text, never as markup, because a model
// wrote what a run holds. All of it goes through `h` and `setChildren`.
import { address, hasAnswer } from "./api.js";

export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : name === "title" ? escapeInvisible(value) : value);
  }
  setChildren(element, ...children);
  return element;
}

// Replaces the children of an element.
export function setChildren(element, ...children) {
  const kept = children.flat(9).filter((each) => each !== null && each !== undefined && each !== false);
  element.replaceChildren(
    ...kept.map((each) => (each instanceof Node ? each : escapeInvisible(String(each)))),
  );
}

const NO_NUMBER = "–";

export function number(value, digits = 4) {
  if (value === null || value === undefined) return NO_NUMBER;
  if (typeof value === "string") return value === "Infinity" ? "∞" : value === "-Infinity" ? "−∞" : value;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value).replace("-", "−");
  if (size >= 1e6 || size < 1e-3)
    return value
      .toExponential(digits - 2)
      .replace("-", "−")
      .replace("e+", "e");
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}

export function count(value) {
  return value === null ? NO_NUMBER : Math.round(value).toLocaleString("en");
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NO_NUMBER;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const [total, minutes] = [Math.round(seconds), Math.round(seconds / 60)];
  if (total < 60) return `${total} s`;
  if (total < 3600) return `${Math.floor(total / 60)} min ${total % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function fixed(value) {
  return typeof value === "number" ? value.toFixed(3) : number(value);
}

// A difference, with its sign.
export function signed(value) {
  if (typeof value !== "number") return number(value);
  return `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(value).toFixed(3)}`;
}

export function interval(each) {
  if (!each || each.mean === null) return NO_NUMBER;
  return each.low === null ? fixed(each.mean) : `${fixed(each.mean)} ${intervalBounds(each)}`;
}

// The bounds of an interval, and the assumption that it needs, if any.
export function intervalBounds(each, form = fixed) {
  return `[${form(each.low)}, ${form(each.high)}]${each.supposes ? ` (assumes ${each.supposes})` : ""}`;
}

// Tasks and samples of an evaluation; "" where an earlier version did not record them.
export function sampleSize(each) {
  if (each.tasks === null) return "";
  return plural(each.tasks, "task") + (each.samples > 1 ? ` × ${each.samples}` : "");
}

export function ago(seconds) {
  const passed = Date.now() / 1000 - seconds;
  return passed < 5
    ? "now"
    : passed > 172800
      ? `${Math.round(passed / 86400)} days ago`
      : `${duration(passed)} ago`;
}

// Shows invisible, bidirectional and control characters as their code point.
const HIDDEN =
  /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu;

export function escapeInvisible(text) {
  return text.replace(HIDDEN, (each) => `\\u{${each.codePointAt(0).toString(16)}}`);
}

export function link(hash, ...children) {
  return h("a", { href: hash }, ...children);
}

// A link to a sample of a step, or its text if a report does not hold it; more: further parts of its address.
export function sampleLink({ run, stage, step }, sample, more = {}, label = sample) {
  const at = { run, stage, step, sample };
  if (hasAnswer("sample", at)) return link(address("sample", { ...at, ...more }), label);
  return h("span", { title: "not in this report" }, label);
}

export function verdictBadge(name, text) {
  return h("span", { class: `verdict ${name.split(" ")[0]}` }, text || name);
}

// Codes of findings, each in the colour of its verdict.
export function findingCodes(findings) {
  return Object.entries(findings).map(([code, name]) => [verdictBadge(name, code), " "]);
}

const STATES = {
  undone: "",
  trace: "",
  running: "running",
  finished: "finished",
  "stopped by a finding": "bad",
  crashed: "bad",
  "given up": "bad",
};

export function stateBadge(name) {
  return h("span", { class: `state ${STATES[name] ?? "warn"}` }, name);
}

export function tile(name, value, more) {
  return h(
    "div",
    { class: "tile" },
    h("div", { class: "name" }, name),
    h("div", { class: "value" }, value),
    more && h("div", { class: "more" }, more),
  );
}

export function table(columns, rows) {
  const head = h(
    "tr",
    {},
    columns.map(([name, kind]) => h("th", { class: kind || "", scope: "col" }, name)),
  );
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, head), h("tbody", {}, rows)));
}

// Names in the order of their numbers: run-2 before run-10.
export function byName(one, other) {
  return one.localeCompare(other, "en", { numeric: true });
}

export function plural(many, one, more) {
  return `${many} ${many === 1 ? one : more || `${one}s`}`;
}
