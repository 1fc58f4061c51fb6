// Parts that the lists of a run share: breadcrumbs, loading notes, filters, sorting and pages.
import { count, h, link } from "./dom.js";
import { address, currentAddress, navigate } from "./api.js";

export function withCount(many, one) {
  return `${count(many)} ${many === 1 ? one : `${one}s`}`;
}

export function crumbs(query) {
  return h("p", { class: "crumbs" }, link(address("run", { run: query.run }), query.run));
}

// The server reads a large run in parts; the page asks again until all is read.
export function loadingNotes(data, context, textLabel) {
  if (data.waiting || data.unread) context.reload(200);
  const left = [
    data.waiting ? `Loading ${withCount(data.waiting, "step")} …` : null,
    data.unread ? `Loading ${textLabel(data.unread)} …` : null,
  ];
  return [
    left.map((text) => text && h("p", { class: "quiet", role: "status" }, text)),
    data.unreadable_count
      ? h(
          "div",
          { class: "error" },
          `${withCount(data.unreadable_count, "step")} cannot be read: ${data.unreadable.join("; ")}`,
        )
      : null,
  ];
}

// The address of the list with some arguments changed, from its first page on.
export function addressWith(query, change) {
  return address(currentAddress().page, { ...query, ...change, start: "" });
}

function change(query, name) {
  return (event) => {
    const { type, checked, value } = event.target;
    navigate(currentAddress().page, {
      ...query,
      [name]: type === "checkbox" ? (checked ? "1" : "") : value,
      start: "",
    });
  };
}

// Filters keep the keyboard focus when the list is drawn again, by their name (data-hold).
export function filterInput(query, name, label, attributes) {
  const shown =
    attributes.type === "checkbox" ? { checked: query[name] === "1" } : { value: query[name] || "" };
  const box = h("input", { ...attributes, ...shown, "data-hold": name, onchange: change(query, name) });
  return h("label", {}, attributes.type === "checkbox" ? [box, label] : [label, box]);
}

// options: values with their labels.
export function filterSelect(query, name, label, options, chosen) {
  const each = ([value, text]) => h("option", { value, selected: value === chosen }, text);
  return h(
    "label",
    {},
    label,
    h("select", { "data-hold": name, onchange: change(query, name) }, options.map(each)),
  );
}

// The header of a column that the list can be sorted by.
export function sortHeader(query, order, text, kind) {
  const now = query.order === order;
  const sort = () =>
    navigate(currentAddress().page, {
      ...query,
      order,
      backwards: now && !query.backwards ? "1" : "",
      start: "",
    });
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

// Page links, above the list and below it.
export function pages(query, many) {
  const start = Number(query.start || 0);
  if (many <= PAGE && !start) return null;
  const to = (at, key, text) =>
    h(
      "a",
      {
        href: address(currentAddress().page, { ...query, start: at || "" }),
        "data-key": key,
        "data-hold": text,
      },
      text,
    );
  return h(
    "p",
    { class: "row" },
    start > 0 ? to(Math.max(0, start - PAGE), ",", "← previous") : null,
    many > start
      ? h(
          "span",
          { class: "quiet" },
          `${count(start + 1)} to ${count(Math.min(many, start + PAGE))} of ${count(many)}`,
        )
      : null,
    start + PAGE < many ? to(start + PAGE, ".", "next →") : null,
  );
}

// A list with its pages, or the reason why it is empty.
export function list(query, data, filters, content, nothing) {
  return h(
    "section",
    { "data-list": true },
    h("div", { class: "row" }, filters),
    pages(query, data.count),
    data.count ? [content, pages(query, data.count)] : h("p", {}, nothing),
  );
}
