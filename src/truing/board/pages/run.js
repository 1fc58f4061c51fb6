// One run: findings first, then how it stands, then every chart.
import { basis, count, duration, ends, fill, fixed, h, interval, link } from "./dom.js";
import { number, plural, state, table, tile, verdict } from "./dom.js";
import { address, get, IS_REPORT } from "./data.js";
import { charts, latest } from "./dashboard.js";
import { findings } from "./finding.js";
import { progress } from "./runs.js";

export async function run(page, query, context) {
  let told = await get("run", { run: query.run });
  const seen = { stretch: query.from && query.to ? () => [Number(query.from), Number(query.to)] : latest };
  const head = h("div", {}),
    drawn = h("div", {}),
    foot = h("div", {});
  const rooms = h("nav", { class: "jump", "aria-label": "on this page" });
  const words = () => {
    fill(rooms, ...jumps(told, page));
    fill(head, ...above(told));
    fill(foot, ...below(told).flat(9).filter(Boolean));
  };
  words();
  fill(page, rooms, head, drawn, foot);
  let boxes = charts(drawn, () => told, seen);
  context.keep(() => boxes);
  context.renew(async () => {
    const listed = kinds(told);
    told = await get("run", { run: query.run });
    words();
    if (kinds(told) === listed) return Promise.all(boxes.map((each) => each.show()));
    fill(drawn);
    boxes = charts(drawn, () => told, seen);
  });
}

function kinds(told) {
  return JSON.stringify([told.rooms, told.spans.map((each) => each.stage)]);
}

// What is far down the page, by its heading: the address is taken, so that these are buttons.
function jumps(told, page) {
  const names = [
    "Findings",
    told.scorecard.length ? CRITERIA : null,
    ...told.rooms.map((each) => each.title),
    HAPPENED,
    told.words.length ? FIRST : null,
    RUN,
  ].filter(Boolean);
  const jump = (name) => {
    const target = page.querySelector(`[data-jump="${CSS.escape(name)}"]`);
    target.focus({ preventScroll: true });
    target.scrollIntoView();
  };
  return names.map((name) => h("button", { onclick: () => jump(name) }, name));
}

const CRITERIA = "Success criteria";
const HAPPENED = "What happened";
const FIRST = "First tokens in words";
const RUN = "What was run";

function heading(name) {
  return h("h2", { "data-jump": name, tabindex: -1 }, name);
}

function above(told) {
  return [
    h(
      "div",
      { class: "row" },
      h("h1", {}, told.run),
      state(told.state),
      h("span", { class: "grow" }),
      ...ways(told),
    ),
    h(
      "p",
      { class: "quiet wrap" },
      [told.model, told.device, told.created, told.why].filter(Boolean).join(" · "),
    ),
    told.trouble ? h("div", { class: "error" }, told.trouble) : "",
    h("section", { "data-jump": "Findings", "aria-label": "findings", tabindex: -1 }, findings(told)),
    tiles(told),
    scorecard(told) || "",
  ];
}

function below(told) {
  return [
    heading(HAPPENED),
    log(told),
    told.words.length ? [heading(FIRST), words(told)] : null,
    heading(RUN),
    h("details", {}, h("summary", {}, "recipe"), h("pre", {}, told.recipe)),
    Object.entries(told.about).map(([name, value]) =>
      h("details", {}, h("summary", {}, name), h("pre", {}, JSON.stringify(value, null, 2))),
    ),
  ];
}

function ways(told) {
  if (IS_REPORT) return [];
  const last = told.spans[told.spans.length - 1];
  return [
    last &&
      link(
        address("update", {
          run: told.run,
          stage: last.stage,
          update: last.end - last.start - 1 + last.first,
        }),
        "last update",
      ),
    link(address("samples", { run: told.run }), "samples"),
    link(address("tasks", { run: told.run }), "prompts"),
    link(address("compare", { a: told.run }), "compare"),
  ].filter(Boolean);
}

// Evaluations that have a tile; the chart of the reward has all.
const TILES = 3;

function tiles(told) {
  const evaluations = Object.entries(told.evaluations)
    .slice(-TILES)
    .map(([name, each]) =>
      tile(`evaluation ${name.replaceAll("_", " ")}`, fixed(each.mean), [
        each.low === null ? null : h("div", {}, `95 % ${ends(each)}`),
        h("div", {}, basis(each)),
        Object.entries(told.pass_at[name] || {}).map(([k, one]) => h("div", {}, `pass@${k} ${interval(one)}`)),
      ]),
    );
  const reward = told.reward || { mean: null, low: null };
  return h(
    "div",
    { class: "tiles" },
    tile(
      "reward, last 10 updates",
      fixed(reward.mean),
      reward.low === null ? "" : `95 % ${ends(reward)}`,
    ),
    evaluations,
    h(
      "div",
      { class: "tile" },
      h("div", { class: "name" }, "progress"),
      progress(told),
      told.left ? h("div", { class: "more" }, `${duration(told.left)} left`) : null,
    ),
    tile("updates took", duration(told.seconds), `${count(told.tokens)} tokens drawn`),
    tile("last loss was", told.loss.replaceAll("_", " ") || "–", `${number(told.tokens_per_s)} tokens/s`),
  );
}

function scorecard(told) {
  if (!told.scorecard.length) return null;
  const rows = told.scorecard.map((each) =>
    h(
      "tr",
      {},
      h("td", {}, verdict(each.verdict)),
      h("td", {}, h("b", {}, each.name)),
      h("td", { class: "wrap" }, each.measured),
      h("td", { class: "wrap quiet" }, each.reading),
      h("td", { class: "wrap quiet" }, each.report),
    ),
  );
  const failed = told.scorecard.some((each) => each.verdict === "fail");
  const counts = {};
  for (const each of told.scorecard) counts[each.verdict] = (counts[each.verdict] || 0) + 1;
  const said = Object.entries(counts)
    .map(([name, many]) => `${many} ${name}`)
    .join(", ");
  return h(
    "details",
    { open: failed, "data-jump": CRITERIA, tabindex: -1 },
    h("summary", {}, h("b", {}, CRITERIA), ` ${said}`),
    table([[""], ["criterion"], ["measured"], ["as it should read"], ["as reports have it"]], rows),
  );
}

function log(told) {
  const rows = told.events.map((each) =>
    h(
      "tr",
      {},
      h("td", { class: "quiet mono" }, each.when),
      h("td", {}, each.kind),
      h("td", { class: "wrap" }, each.text),
    ),
  );
  return h(
    "details",
    { open: rows.length < 12 },
    h("summary", {}, plural(rows.length, "event")),
    table([["when (UTC)"], ["what"], [""]], rows),
  );
}

function words(told) {
  return told.words.map((each) =>
    h(
      "details",
      {},
      h("summary", {}, `${each.stage} ${each.update}`),
      h("pre", {}, each.lines.map(([text, codes]) => `${text}  [${codes}]`).join("\n")),
    ),
  );
}
