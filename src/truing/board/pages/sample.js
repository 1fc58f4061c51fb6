// A sample as it was, token by token; and a group of them side by side.
import { fill, h, link, marks, number, plural, tile } from "./dom.js";
import { address, get, holds } from "./data.js";
import { finding } from "./finding.js";
import { toSample } from "./links.js";
import { legend, nextTint, tints, View } from "./tokens.js";

export async function sample(page, query, context) {
  const asked = { run: query.run, stage: query.stage, update: query.update };
  const whole = { ...asked, sample: query.sample };
  const there = { ...whole, token: query.token };
  const told = await get("sample", holds("sample", there) ? there : whole);
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
      neighbours(query, told),
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

function neighbours(query, told) {
  const to = (sample, key, says) => {
    const at = { run: query.run, stage: query.stage, update: query.update, sample };
    return sample && holds("sample", at)
      ? h("a", { href: address("sample", { ...at, tint: query.tint }), "data-key": key }, says)
      : null;
  };
  return h("span", { class: "row" }, to(told.before, ",", "← before"), to(told.after, ".", "after →"));
}

export async function group(page, query, context) {
  const asked = { run: query.run, stage: query.stage, update: query.update, group: query.group };
  const told = await get("group", asked);
  const columns = h("div", { class: "columns" });
  const card = h("aside", { class: "card", "aria-live": "polite" });
  const views = told.samples.map((each) => {
    const mine = each.about.sample === query.sample;
    return new View(each, { ...query, sample: each.about.sample, token: mine ? query.token : "" }, card);
  });
  fill(
    columns,
    ...told.samples.map((each, i) =>
      h(
        "section",
        {},
        h(
          "div",
          { class: "row" },
          h("b", {}, toSample(query, each.about.sample, { tint: query.tint })),
          h("span", { class: "grow" }),
          marks(each.about.findings),
        ),
        h(
          "div",
          { class: "quiet" },
          `reward ${number(each.about.reward)} · advantage ${number(each.about.advantage, 3)} · ${each.about.sampled} drawn · ${each.about.finish}`,
        ),
        views[i].box,
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
      [
        `${plural(told.attempts, "attempt")} at ${told.samples[0].about.task}, best first`,
        told.count > told.attempts ? `${told.count} samples` : "",
        told.count > told.samples.length ? `the first ${told.samples.length}` : "",
      ]
        .filter(Boolean)
        .join("; "),
    ),
    tints(query, (tint) => {
      for (const view of views) view.paintAs(tint);
    }),
    legend(),
    h("div", { class: "xray" }, columns, card),
  );
  const pointed = () => views.find((each) => each === View.last) || views[0];
  context.keys({
    ArrowRight: () => pointed().step(1),
    ArrowLeft: () => pointed().step(-1),
    t: nextTint,
  });
  requestAnimationFrame(() => views.forEach((view) => view.focus()));
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
