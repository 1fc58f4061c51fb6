// One run: findings first, then how it stands, then every chart.
import { count, duration, fill, h, link, number, plural, state, table, tile, verdict } from "./dom.js";
import { address, get, go, IS_REPORT, remember } from "./data.js";
import { bars, definitions, draw, legend, place } from "./chart.js";
import { progress } from "./runs.js";

export async function run(page, query, context) {
  let told = await get("run", { run: query.run });
  const seen = { stretch: query.from && query.to ? () => [Number(query.from), Number(query.to)] : latest };
  const head = h("div", {}), drawn = h("div", {}), foot = h("div", {});
  const words = () => {
    fill(head, ...above(told));
    fill(foot, ...below(told).flat(9).filter(Boolean));
  };
  words();
  fill(page, head, drawn, foot);
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

// What charts show: a stretch of updates, as a function of the run, which goes on; null is all of it.
// A stage's own begins with the evaluation before it, which stands where the stage before has its last update.
function of(stage) {
  return (told) => {
    const span = told.spans.find((each) => each.stage === stage);
    return span ? [span.start - 0.2, span.end + 0.5, span.start + 1] : null;
  };
}

function latest(told) {
  return told.spans.length ? of(told.spans[told.spans.length - 1].stage)(told) : null;
}

function above(told) {
  return [
    h("div", { class: "row" }, h("h1", {}, told.run), state(told.state), h("span", { class: "grow" }), ...ways(told)),
    h("p", { class: "quiet wrap" }, [told.model, told.device, told.created, told.why].filter(Boolean).join(" · ")),
    told.trouble ? h("div", { class: "error" }, told.trouble) : "",
    ...[findings(told)].flat(),
    tiles(told),
    scorecard(told) || "",
  ];
}

function below(told) {
  return [
    h("h2", {}, "What happened"), log(told),
    told.words.length ? [h("h2", {}, "First tokens in words"), words(told)] : null,
    h("h2", {}, "What was run"),
    h("details", {}, h("summary", {}, "recipe"), h("pre", {}, told.recipe)),
    Object.entries(told.about).map(([name, value]) => h("details", {}, h("summary", {}, name), h("pre", {}, JSON.stringify(value, null, 2)))),
  ];
}

function ways(told) {
  if (IS_REPORT) return [];
  const last = told.spans[told.spans.length - 1];
  return [
    last && link(address("update", { run: told.run, stage: last.stage, update: last.end - last.start - 1 + last.first }), "last update"),
    link(address("samples", { run: told.run }), "samples"),
    link(address("tasks", { run: told.run }), "prompts"),
    link(address("compare", { a: told.run }), "compare"),
  ].filter(Boolean);
}

export function findings(told) {
  if (!told.findings.length) {
    const judged = told.updates ? `The doctor looked at ${plural(told.updates, "update")} and no rule found anything.` : "No update yet.";
    return h("div", { class: "finding clean" }, judged);
  }
  return told.findings.map((each) => finding(each, told.run));
}

export function finding(each, name) {
  const at = name === null ? `${each.stage} ${each.update}${each.sample_id ? `, sample ${each.sample_id}` : ""}` : each.sample_id
    ? link(address("sample", { run: name, stage: each.stage, update: each.update, sample: each.sample_id, token: each.end > each.start ? each.start : "" }), `${each.stage} ${each.update}, sample ${each.sample_id}${each.end > each.start ? `, token ${each.start}` : ""}`)
    : link(address("update", { run: name, stage: each.stage, update: each.update }), `${each.stage} ${each.update}`);
  const rows = [["got", each.got], ["expected", each.expected], ["fix", each.remedy], ["why silent", each.why]].filter(([, text]) => text);
  return h("section", { class: `finding ${each.verdict}` },
    h("div", { class: "row" }, verdict(each.verdict, each.verdict + (each.log10_odds ? ` 10^${Math.round(each.log10_odds)} : 1` : "")), h("b", {}, link(address("rule", { code: each.code }), `${each.code} ${each.name}`)), h("span", {}, "at ", at)),
    h("p", { class: "wrap" }, each.what),
    each.undone ? h("p", { class: "quiet" }, each.undone) : null,
    each.excerpt && each.excerpt.length ? h("div", { class: "excerpt mono" }, each.excerpt.map(([text, meant]) => h(meant ? "mark" : "span", {}, text))) : null,
    h("dl", {}, rows.map(([label, text]) => [h("dt", {}, label), h("dd", {}, text)])));
}

// Evaluations that have a tile; the chart of the reward has all.
const TILES = 3;

const fixed = (value) => (value === null ? "–" : value.toFixed(3));

function tiles(told) {
  const evaluations = Object.entries(told.evaluations).slice(-TILES).map(([name, each]) => tile(`evaluation ${name.replaceAll("_", " ")}`, fixed(each.mean), `95 % [${fixed(each.low)}, ${fixed(each.high)}]`));
  const reward = told.reward || { mean: null, low: null };
  return h("div", { class: "tiles" },
    tile("reward, last 10 updates", fixed(reward.mean), reward.low === null ? "" : `95 % [${fixed(reward.low)}, ${fixed(reward.high)}]`),
    evaluations,
    h("div", { class: "tile" }, h("div", { class: "name" }, "progress"), progress(told), told.left ? h("div", { class: "more" }, `${duration(told.left)} left`) : null),
    tile("updates took", duration(told.seconds), `${count(told.tokens)} tokens drawn`),
    tile("last loss was", told.loss.replaceAll("_", " ") || "–", `${number(told.tokens_per_s)} tokens/s`));
}

function scorecard(told) {
  if (!told.scorecard.length) return null;
  const rows = told.scorecard.map((each) => h("tr", {}, h("td", {}, verdict(each.verdict)), h("td", {}, h("b", {}, each.name)), h("td", { class: "wrap" }, each.measured), h("td", { class: "wrap quiet" }, each.reading), h("td", { class: "wrap quiet" }, each.report)));
  const failed = told.scorecard.some((each) => each.verdict === "fail");
  const counts = {};
  for (const each of told.scorecard) counts[each.verdict] = (counts[each.verdict] || 0) + 1;
  const said = Object.entries(counts).map(([name, many]) => `${many} ${name}`).join(", ");
  return h("details", { open: failed }, h("summary", {}, h("b", {}, "Success criteria"), ` ${said}`),
    table([[""], ["criterion"], ["measured"], ["as it should read"], ["as reports have it"]], rows));
}

// Charts are asked for as they come into view, and again when the run goes on, or somebody zooms.
//   now: tells the run as it is; seen.stretch: what is shown of it.
function charts(element, now, seen) {
  const told = now(), drawn = [];
  const show = (stretch) => {
    seen.stretch = stretch;
    const to = stretch(now());
    remember({ from: to && (to[2] || Math.max(1, Math.floor(to[0]))), to: to && Math.ceil(to[1]) });
    for (const each of drawn) each.show();
  };
  const zoom = (to) => show(() => to);
  const click = (x) => {
    const at = place(x, now().spans);
    if (at) go("update", { run: told.run, ...at });
  };
  const stages = [["whole run", () => null], ...told.spans.map((each) => [each.stage, of(each.stage)])];
  const buttons = told.spans.length > 1 ? stages.map(([name, stretch]) => h("button", { onclick: () => show(stretch) }, name)) : [];
  element.append(h("p", { class: "row", role: "group", "aria-label": "what charts show" }, buttons, h("span", { class: "quiet" }, "click: open the update · drag: zoom · double-click: zoom out")));
  for (const room of told.rooms) {
    const grid = h("div", { class: "charts" });
    element.append(h("h2", {}, room.title, h("small", {}, room.asks)), grid);
    if (room.title === "Policy" && told.ratios) grid.append(ratios(told));
    for (const { name, title } of room.charts) {
      const box = chart(now, name, title, { click, zoom }, seen);
      drawn.push(box);
      grid.append(box.element);
    }
  }
  return drawn;
}

function chart(now, name, title, on, seen) {
  const area = h("div", { class: "plot" });
  const below = h("div", {});
  const element = h("figure", { class: "chart", "aria-label": title }, h("h3", {}, title), area, below);
  let asked = false;
  let answers = 0;
  const box = { element, name, show: async () => {
    if (!asked) return;
    const told = now(), range = seen.stretch(told), mine = ++answers;
    const answer = await get("chart", { run: told.run, chart: name, ...(IS_REPORT || !range ? {} : { from: range[2] || Math.max(1, Math.floor(range[0])), to: Math.ceil(range[1]) }) });
    if (mine !== answers) return; // it was asked again since
    draw(area, answer, { spans: told.spans, limits: limitsOf(told, name), evaluations: name === "reward" ? told.evaluations_at : [], on, range });
    fill(below, ...[legend(answer), definitions(answer)].filter(Boolean));
    element.dataset.drawn = "yes";
  } };
  new IntersectionObserver((found, observer) => {
    if (!found.some((each) => each.isIntersecting)) return;
    observer.disconnect();
    asked = true;
    box.show().catch((error) => fill(below, h("div", { class: "error" }, error.message)));
  }, { rootMargin: "300px" }).observe(element);
  return box;
}

// Stages may compare with other numbers; a chart shows those of the last one that has any.
function limitsOf(told, name) {
  for (const span of [...told.spans].reverse()) {
    const found = (told.bounds[span.stage] || {})[name];
    if (found) return found;
  }
  return [];
}

function ratios(told) {
  const element = h("figure", { class: "chart" }, h("h3", {}, "Ratios of the last update, by inner epoch"));
  histogram(element, told.ratios, told.ratios.limits);
  return element;
}

export function histogram(element, told, limits) {
  told.epochs.forEach((epoch, index) => {
    const area = h("div", { class: "plot" });
    element.append(h("div", { class: "ratios" }, h("div", { class: "quiet" }, `inner epoch ${index + 1}: ${count(epoch.scored)} tokens, r of each ${told.level}`), area, sides(told.edges, epoch, limits)));
    bars(area, told.edges, [
      { name: "A < 0", counts: epoch.negative, colour: "#b0413e" },
      { name: "A = 0", counts: epoch.zero, colour: "#8a94a3" },
      { name: "A > 0", counts: epoch.positive, colour: "#2e9e5b" },
    ], limits);
  });
}

// How many tokens lie below, between and above the clip's boundaries, which are edges of bins.
function sides(edges, epoch, limits) {
  const [low, high] = limits.map((each) => edges.indexOf(each.y));
  if (!(low >= 0 && high > low)) return null;
  const sum = (counts, from, to) => counts.slice(from, to).reduce((all, each) => all + each, 0);
  const row = (name, counts) => h("tr", {}, h("td", {}, name), ...[[0, low + 1], [low + 1, high + 1], [high + 1]].map(([from, to]) => h("td", { class: "number" }, count(sum(counts, from, to)))));
  return table([["tokens"], [`r < ${number(edges[low])}`, "number"], ["between", "number"], [`r > ${number(edges[high])}`, "number"]], [row("A > 0", epoch.positive), row("A < 0", epoch.negative), row("A = 0", epoch.zero)]);
}

function log(told) {
  const rows = told.events.map((each) => h("tr", {}, h("td", { class: "quiet mono" }, each.when), h("td", {}, each.kind), h("td", { class: "wrap" }, each.text)));
  return h("details", { open: rows.length < 12 }, h("summary", {}, plural(rows.length, "event")), table([["when (UTC)"], ["what"], [""]], rows));
}

function words(told) {
  return told.words.map((each) => h("details", {}, h("summary", {}, `${each.stage} ${each.update}`), h("pre", {}, each.lines.map(([text, codes]) => `${text}  [${codes}]`).join("\n"))));
}
