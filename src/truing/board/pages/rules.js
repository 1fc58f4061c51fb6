// The rules of the doctor: all of them, and the page of one.
import { fill, h, link, table } from "./dom.js";
import { address, get, IS_REPORT } from "./data.js";

export async function rules(page) {
  const told = await get("rules");
  const rows = h("div", {});
  const show = (text) => {
    const kept = told.filter((each) =>
      `${each.code} ${each.name} ${each.title}`.toLowerCase().includes(text.toLowerCase()),
    );
    fill(
      rows,
      kept.length ? null : h("p", { class: "quiet" }, "No rule has these words."),
      table(
        [["code"], ["name"], ["kind"], ["what it finds"]],
        kept.map((each) =>
          h(
            "tr",
            { class: "to" },
            h("td", { class: "mono" }, link(address("rule", { code: each.code }), each.code)),
            h("td", {}, each.name),
            h("td", { title: each.means }, each.kind),
            h("td", { class: "wrap" }, each.title),
          ),
        ),
      ),
    );
  };
  fill(
    page,
    h("h1", {}, `${told.length} rules`),
    h("input", {
      type: "search",
      placeholder: "find a rule",
      "aria-label": "find a rule",
      "data-key": "/",
      oninput: (event) => show(event.target.value),
    }),
    rows,
  );
  show("");
}

export async function rule(page, query) {
  const told = await get("rule", { code: query.code });
  fill(
    page,
    h("p", { class: "crumbs" }, IS_REPORT ? null : link(address("rules"), "rules")),
    h("h1", {}, `${told.code} ${told.name}`),
    h("p", {}, told.title),
    h(
      "p",
      { class: "quiet" },
      `${told.kind}. Needs ${told.needs.join(", ")}.${told.taints.length ? ` Taints ${told.taints.join("; ")}.` : ""}`,
    ),
    told.sections.filter((each) => each.text).map((each) => [h("h2", {}, each.name), h("p", {}, each.text)]),
    h("h2", {}, "An example that fires"),
    h("pre", {}, told.example),
  );
}
