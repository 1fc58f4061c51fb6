// A sample as it was, token by token; and a group of them side by side.
import { fill, h, link, number, tile, verdict } from "./dom.js";
import { address, get, IS_REPORT } from "./data.js";
import { finding } from "./finding.js";
import { legend, tints, View } from "./tokens.js";

export async function sample(page, query, context) {
  const asked = { run: query.run, stage: query.stage, update: query.update };
  const told = await get("sample", { ...asked, sample: query.sample, token: IS_REPORT ? "" : query.token });
  const about = told.about;
  const view = new View(told, query);
  fill(
    page,
    crumbs(query),
    h(
      "div",
      { class: "row" },
      h("h1", {}, about.sample),
      h("span", { class: "grow" }),
      link(address("group", { ...asked, group: about.group }), "its group side by side"),
    ),
    told.findings.map((each) => finding(each, query.run)),
    h(
      "div",
      { class: "tiles" },
      tile(
        "reward",
        number(about.reward),
        Object.entries(about.parts)
          .map(([name, value]) => `${name} ${number(value, 3)}`)
          .join(", "),
      ),
      tile(
        "advantage",
        number(about.advantage),
        about.computed ? "" : "not computed: no term of the loss has a gradient on it",
      ),
      tile("tokens", String(about.length), `${about.sampled} drawn, ${about.trained} trained`),
      tile("ended", about.finish || about.status, `${about.status}, by ${about.ended_by}`),
      tile("task", about.task, about.family),
    ),
    about.error ? h("pre", { class: "error" }, about.error) : null,
    view.element,
    h(
      "details",
      { class: "gap" },
      h("summary", {}, "what the world says it became"),
      h("pre", {}, about.outcome || "nothing"),
    ),
    h(
      "details",
      {},
      h("summary", {}, "messages, as graders were given them"),
      told.messages.map((each) => [h("h3", { class: "gap" }, each.role), h("pre", {}, each.text)]),
    ),
    h(
      "details",
      {},
      h("summary", {}, "sampling contract"),
      h("pre", {}, JSON.stringify(about.contract, null, 2)),
    ),
  );
  context.keys(view.keys());
  requestAnimationFrame(() => view.focus());
}

export async function group(page, query, context) {
  const asked = { run: query.run, stage: query.stage, update: query.update, group: query.group };
  const told = await get("group", asked);
  const columns = h("div", { class: "columns" });
  const views = told.samples.map(
    (each) => new View({ ...each, findings: [] }, { ...query, sample: each.about.sample }, true),
  );
  const show = () =>
    fill(
      columns,
      ...told.samples.map((each, i) =>
        h(
          "section",
          {},
          h(
            "div",
            { class: "row" },
            h(
              "b",
              {},
              link(address("sample", { ...query, group: "", sample: each.about.sample }), each.about.sample),
            ),
            h("span", { class: "grow" }),
            each.about.findings.map((code) => verdict("PROVEN", code)),
          ),
          h(
            "div",
            { class: "quiet" },
            `reward ${number(each.about.reward)} · advantage ${number(each.about.advantage, 3)} · ${each.about.sampled} drawn · ${each.about.finish}`,
          ),
          views[i].text(),
        ),
      ),
    );
  fill(
    page,
    crumbs(query),
    h("h1", {}, `group ${told.group}`),
    h(
      "p",
      { class: "quiet" },
      `${told.count} attempts at ${told.samples[0].about.task}, best first${told.count > told.samples.length ? `; the first ${told.samples.length}` : ""}`,
    ),
    tints(query, (tint) => {
      query.tint = tint;
      for (const view of views) view.tint = tint;
      show();
    }),
    legend(),
    columns,
  );
  show();
  context.keys({});
}

function crumbs(query) {
  return h(
    "p",
    { class: "crumbs" },
    link(address("run", { run: query.run }), query.run),
    " / ",
    link(
      address("update", { run: query.run, stage: query.stage, update: query.update }),
      `${query.stage} ${query.update}`,
    ),
  );
}
