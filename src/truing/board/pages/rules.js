// The rules of the doctor: the list, and the page of one rule.
import { h, link, setChildren, table } from "./dom.js";
import { address, get, IS_REPORT } from "./api.js";

export async function rules(page) {
  const data = await get("rules");
  const rows = h("div", {});
  const show = (text) => {
    const kept = data.filter((each) =>
      `${each.code} ${each.name} ${each.title}`.toLowerCase().includes(text.toLowerCase()),
    );
    setChildren(
      rows,
      kept.length ? null : h("p", { class: "quiet" }, "No matching rules."),
      table(
        [["code"], ["name"], ["kind"], ["detects"]],
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
  setChildren(
    page,
    h("h1", {}, `${data.length} rules`),
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
  const data = await get("rule", { code: query.code });
  setChildren(
    page,
    h("p", { class: "crumbs" }, IS_REPORT ? null : link(address("rules"), "rules")),
    h("h1", {}, `${data.code} ${data.name}`),
    h("p", {}, data.title),
    h(
      "p",
      { class: "quiet" },
      `${data.kind}. Needs ${data.needs.join(", ")}.${data.taints.length ? ` Invalidates ${data.taints.join("; ")}.` : ""}`,
    ),
    data.sections.filter((each) => each.text).map((each) => [h("h2", {}, each.name), h("p", {}, each.text)]),
    h("h2", {}, "Example"),
    h("pre", {}, data.example),
  );
}
