// One run: findings, then its status, then every chart.
import { count, duration, fixed, h, interval, intervalBounds, link, sampleSize, setChildren } from "./dom.js";
import { number, plural, stateBadge, table, tile, verdictBadge } from "./dom.js";
import { address, get, IS_REPORT } from "./api.js";
import { numberAt } from "./axes.js";
import { checked } from "./checked.js";
import { chartGroups, lastStageRange } from "./dashboard.js";
import { experiment, parentLine } from "./experiment.js";
import { findings } from "./finding.js";
import { progress } from "./runs.js";
import { secondGrader } from "./second_grader.js";

export async function run(page, query, context) {
  let [data, made] = await asked(query);
  const seen = {
    range: query.from && query.to ? () => [Number(query.from), Number(query.to)] : lastStageRange,
  };
  const head = h("div", {}),
    drawn = h("div", {}),
    foot = h("div", {});
  const navigation = h("nav", { class: "jump", "aria-label": "on this page" });
  const fillAround = () => {
    setChildren(navigation, ...sectionButtons(data, made, page));
    setChildren(head, ...beforeCharts(data, made));
    setChildren(foot, ...afterCharts(data).flat(9).filter(Boolean));
  };
  fillAround();
  setChildren(page, navigation, head, drawn, foot);
  let boxes = chartGroups(drawn, () => data, seen);
  context.charts(() => boxes);
  if (data.unread) context.reload(300);
  context.refresh(async () => {
    const listed = layoutKey(data);
    [data, made] = await asked(query);
    fillAround();
    if (layoutKey(data) === listed) return Promise.all(boxes.map((each) => each.show()));
    setChildren(drawn);
    boxes = chartGroups(drawn, () => data, seen);
  });
}

// The run, and of its forks its parent and the experiment on it, or why they cannot be read.
function asked({ run: name }) {
  const failed = (error) => ({ parent: null, experiment: null, error: error.message });
  return Promise.all([get("run", { run: name }), get("forks", { run: name }).catch(failed)]);
}

function layoutKey(data) {
  return JSON.stringify([data.rooms, data.spans.map((each) => each.stage)]);
}

// Buttons that scroll to the sections. They are not links, because the address holds the state of the view.
function sectionButtons(data, made, page) {
  const names = [
    "Findings",
    data.checked ? CHECKED : null,
    data.scorecard.length ? CRITERIA : null,
    made.experiment ? EXPERIMENT : null,
    ...data.rooms.map((each) => each.title),
    EVENTS,
    data.words.length ? FIRST_TOKENS : null,
    CONFIGURATION,
  ].filter(Boolean);
  const jump = (name) => {
    const target = page.querySelector(`[data-jump="${CSS.escape(name)}"]`);
    target.focus({ preventScroll: true });
    target.scrollIntoView();
  };
  return names.map((name) => h("button", { onclick: () => jump(name) }, name));
}

const CHECKED = "Checked";
const CRITERIA = "Success criteria";
const EXPERIMENT = "Experiment";
const EVENTS = "Events";
const FIRST_TOKENS = "First tokens explained";
const CONFIGURATION = "Configuration";

function heading(name) {
  return h("h2", { "data-jump": name, tabindex: -1 }, name);
}

function beforeCharts(data, made) {
  return [
    h(
      "div",
      { class: "row" },
      h("h1", {}, data.run),
      stateBadge(data.state),
      h("span", { class: "grow" }),
      ...links(data),
    ),
    h(
      "p",
      { class: "quiet wrap" },
      [data.model, data.device, data.created, data.why].filter(Boolean).join(" · "),
    ),
    data.unread
      ? h("p", { class: "quiet", role: "status" }, `${plural(data.unread, "further step")} to judge …`)
      : null,
    made.parent ? h("p", { class: "quiet wrap" }, forkLine(data.run, made.parent)) : null,
    [data.trouble, made.error].map((each) => (each ? h("div", { class: "error" }, each) : null)),
    h(
      "section",
      { "data-jump": "Findings", "aria-label": "findings", tabindex: -1 },
      data.second?.gains?.denied
        ? [secondGrader(data), findings(data)]
        : [findings(data), secondGrader(data)],
    ),
    data.checked ? [heading(CHECKED), checked(data.checked)] : null,
    data.checked ? traceTiles(data) : tiles(data),
    scorecard(data) || "",
    made.experiment ? [heading(EXPERIMENT), experiment(data.run, made.experiment)] : null,
  ];
}

function forkLine(name, parent) {
  const compared = address("compare", { a: parent.run, b: name });
  return parentLine(
    name,
    parent,
    parent.run === null ? null : [" · ", link(compared, "compare both")],
    parent.changes.length ? ` · with ${parent.changes.join(" ")}` : " · with the same recipe",
  );
}

function afterCharts(data) {
  return [
    heading(EVENTS),
    log(data),
    data.words.length ? [heading(FIRST_TOKENS), firstTokens(data)] : null,
    heading(CONFIGURATION),
    data.recipe ? h("details", {}, h("summary", {}, "recipe"), h("pre", {}, data.recipe)) : null,
    Object.entries(data.about).map(([name, value]) =>
      h("details", {}, h("summary", {}, name), h("pre", {}, JSON.stringify(value, null, 2))),
    ),
  ];
}

function links(data) {
  if (IS_REPORT) return [];
  const last = data.spans[data.spans.length - 1];
  return [
    last &&
      link(
        address("step", {
          run: data.run,
          stage: last.stage,
          step: numberAt(last, last.end - 1),
        }),
        "last step",
      ),
    !data.checked && link(address("samples", { run: data.run }), "samples"),
    Object.keys(data.evaluations).length && link(address("answers", { run: data.run }), "evaluated answers"),
    !data.checked && link(address("tasks", { run: data.run }), "prompts"),
    link(address("compare", { a: data.run }), "compare"),
  ].filter(Boolean);
}

// Evaluations with a tile: the first, and the last ones. The reward chart shows all.
const LAST_TILES = 2;

function tiles(data) {
  const evaluations = Object.entries(data.evaluations)
    .filter((_, i, all) => i === 0 || i >= all.length - LAST_TILES)
    .map(([name, each]) =>
      tile(`evaluation ${name.replaceAll("_", " ")}`, fixed(each.mean), [
        each.low === null ? null : h("div", {}, `95 % ${intervalBounds(each)}`),
        h("div", {}, sampleSize(each)),
        Object.entries(data.pass_at[name] || {}).map(([k, one]) =>
          h("div", {}, `pass@${k} ${interval(one)}`),
        ),
      ]),
    );
  return h(
    "div",
    { class: "tiles" },
    rewardTile(data),
    evaluations,
    h(
      "div",
      { class: "tile" },
      h("div", { class: "name" }, "progress"),
      progress(data),
      data.left ? h("div", { class: "more" }, `${duration(data.left)} left`) : null,
    ),
    tile("time in steps", duration(data.seconds), `${count(data.tokens)} tokens sampled`),
    tile(
      "loss of the last step",
      data.loss.replaceAll("_", " ") || "–",
      `${number(data.tokens_per_s)} tokens/s`,
    ),
  );
}

function rewardTile(data) {
  const reward = data.reward || { mean: null, low: null };
  return tile(
    "reward, last 10 steps",
    fixed(reward.mean),
    reward.low === null ? "" : `95 % ${intervalBounds(reward)}`,
  );
}

// Of a trace: what it has, and in one line what it has not.
function traceTiles(data) {
  return [
    h(
      "div",
      { class: "tiles" },
      rewardTile(data),
      tile("steps", count(data.steps), data.at ? `the last is ${data.at[0]} ${data.at[1]}` : ""),
      tile("tokens sampled", count(data.tokens)),
    ),
    h(
      "p",
      { class: "quiet" },
      "A trace has no evaluations, times or recipe. The page of a step lists its samples.",
    ),
  ];
}

function scorecard(data) {
  if (!data.scorecard.length) return null;
  const rows = data.scorecard.map((each) =>
    h(
      "tr",
      {},
      h("td", {}, verdictBadge(each.verdict)),
      h("td", {}, h("b", {}, each.name)),
      h("td", { class: "wrap" }, each.measured),
      h("td", { class: "wrap quiet" }, each.reading),
      h("td", { class: "wrap quiet" }, each.report),
    ),
  );
  const failed = data.scorecard.some((each) => each.verdict === "fail");
  const counts = {};
  for (const each of data.scorecard) counts[each.verdict] = (counts[each.verdict] || 0) + 1;
  const text = Object.entries(counts)
    .map(([name, many]) => `${many} ${name}`)
    .join(", ");
  return h(
    "details",
    { open: failed, "data-jump": CRITERIA, tabindex: -1 },
    h("summary", {}, h("b", {}, CRITERIA), ` ${text}`),
    table([[""], ["criterion"], ["measured"], ["expected"], ["in published reports"]], rows),
  );
}

function log(data) {
  const rows = data.events.map((each) =>
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
    table([["when (UTC)"], ["event"], [""]], rows),
  );
}

function firstTokens(data) {
  return data.words.map((each) =>
    h(
      "details",
      {},
      h("summary", {}, `${each.stage} ${each.step}`),
      h("pre", {}, each.lines.map(([text]) => text).join("\n")),
    ),
  );
}
