// What lists of a run have in common: where they are, what is still to be read, filters, order, and pages.
import { count, h, link } from "./dom.js";
import { address, go, here } from "./data.js";

export function counted(many, one) {
  return `${count(many)} ${many === 1 ? one : `${one}s`}`;
}

export function crumbs(query) {
  return h("p", { class: "crumbs" }, link(address("run", { run: query.run }), query.run));
}

// Of a large run, samples and their words are read while somebody waits; the page asks again.
export function reading(told, context, words) {
  if (told.waiting || told.unread) context.again(200);
  const left = [
    told.waiting ? `Still to be read: ${counted(told.waiting, "update")} …` : null,
    told.unread ? `Still to be read: ${words(told.unread)} …` : null,
  ];
  return [
    left.map((text) => text && h("p", { class: "quiet", role: "status" }, text)),
    told.unreadable_count
      ? h(
          "div",
          { class: "error" },
          `${counted(told.unreadable_count, "update")} cannot be read: ${told.unreadable.join("; ")}`,
        )
      : null,
  ];
}

// The address of the list with one thing asked otherwise, from its first page on.
export function otherwise(query, change) {
  return address(here().page, { ...query, ...change, start: "" });
}

function change(query, name) {
  return (event) => {
    const { type, checked, value } = event.target;
    go(here().page, { ...query, [name]: type === "checkbox" ? (checked ? "1" : "") : value, start: "" });
  };
}

// Filters: what is drawn anew has the keyboard's focus again by its name (data-hold).
export function input(query, name, label, attributes) {
  const shown =
    attributes.type === "checkbox" ? { checked: query[name] === "1" } : { value: query[name] || "" };
  const box = h("input", { ...attributes, ...shown, "data-hold": name, onchange: change(query, name) });
  return h("label", {}, attributes.type === "checkbox" ? [box, label] : [label, box]);
}

// options: values with the words for them.
export function select(query, name, label, options, chosen) {
  const each = ([value, words]) => h("option", { value, selected: value === chosen }, words);
  return h(
    "label",
    {},
    label,
    h("select", { "data-hold": name, onchange: change(query, name) }, options.map(each)),
  );
}

// The head of a column that the list can be sorted by.
export function head(query, order, text, kind) {
  const now = query.order === order;
  const sort = () =>
    go(here().page, { ...query, order, backwards: now && !query.backwards ? "1" : "", start: "" });
  return [
    h(
      "button",
      { class: "sort", onclick: sort, "aria-pressed": String(now), "data-hold": `sort ${order}` },
      text,
      now ? (query.backwards ? " ↓" : " ↑") : "",
    ),
    kind,
  ];
}

const PAGE = 100;

// Above the list and below it: whoever goes on is at the list's top, where it goes on again.
export function pages(query, many) {
  const start = Number(query.start || 0);
  if (many <= PAGE && !start) return null;
  const to = (at, key, words) =>
    h(
      "a",
      { href: address(here().page, { ...query, start: at || "" }), "data-key": key, "data-hold": words },
      words,
    );
  return h(
    "p",
    { class: "row" },
    start > 0 ? to(Math.max(0, start - PAGE), ",", "← before") : null,
    many > start
      ? h(
          "span",
          { class: "quiet" },
          `${count(start + 1)} to ${count(Math.min(many, start + PAGE))} of ${count(many)}`,
        )
      : null,
    start + PAGE < many ? to(start + PAGE, ".", "more →") : null,
  );
}

// A list with its pages; where nothing is in it, why.
export function list(query, told, filters, shown, nothing) {
  return h(
    "section",
    { "data-list": true },
    h("div", { class: "row" }, filters),
    pages(query, told.count),
    told.count ? [shown, pages(query, told.count)] : h("p", {}, nothing),
  );
}
