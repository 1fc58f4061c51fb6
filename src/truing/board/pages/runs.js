// The overview: a row per run, sorted and filtered, and the curves of chosen runs in one chart each.
import { ago, byName, count, duration, h, interval, sampleSize, setChildren } from "./dom.js";
import { link, plural, stateBadge, table, verdictBadge } from "./dom.js";
import { address, currentAddress, get, navigate } from "./api.js";
import { compareCurves } from "./compare_curves.js";
import { parentLine } from "./experiment.js";
import { filterInput, sortHeader } from "./list_view.js";

// The columns by which the list is sorted: the value of a run, and whether the largest is first.
const ORDERS = {
  run: [(run) => run.run, false],
  state: [(run) => run.state, false],
  progress: [(run) => run.steps ?? 0, true],
  findings: [(run) => (run.findings || []).length, true],
  reward: [(run) => run.reward?.mean ?? -Infinity, true],
  evaluation: [(run) => lastEvaluation(run)?.[1].mean ?? -Infinity, true],
  time: [(run) => run.seconds ?? 0, true],
  activity: [(run) => run.last, true],
};

function lastEvaluation(run) {
  return Object.entries(run.evaluations || {}).at(-1);
}

function sorted(all, query) {
  const [value, largestFirst] = ORDERS[query.order] || ORDERS.activity;
  const direction = largestFirst === Boolean(query.backwards) ? 1 : -1;
  const compareValues = (a, b) => (typeof a === "string" ? byName(a, b) : a - b);
  return [...all].sort((a, b) => direction * compareValues(value(a), value(b)) || byName(a.run, b.run));
}

function matches(run, words) {
  const text = [run.run, run.name, run.state, run.model, ...(run.findings || []).map((each) => each.code)];
  return words.every((word) => text.some((each) => each && each.toLowerCase().includes(word)));
}

export async function runs(page, query, { reload, charts }) {
  const data = await get("runs");
  const words = (query.filter || "").toLowerCase().split(/\s+/).filter(Boolean);
  const overlaid = JSON.parse(query.overlay || "[]").filter((name) =>
    data.runs.some((each) => each.run === name),
  );
  const kept = query.ticked ? data.runs.filter((each) => overlaid.includes(each.run)) : data.runs;
  const listed = sorted(kept, { order: "activity", ...query }).filter((each) => matches(each, words));
  const header = (order, text, kind) => sortHeader({ order: "activity", ...query }, order, text, kind);
  const curves = h("div", {});
  setChildren(
    page,
    h("h1", {}, "Runs"),
    h(
      "p",
      { class: "quiet" },
      `${plural(data.runs.length, "run")} under ${data.root}`,
      data.waiting ? ` · reading ${data.waiting} more …` : "",
    ),
    data.notes.map((each) => h("p", { class: "quiet" }, each)),
    data.runs.length
      ? h(
          "section",
          { "data-list": true },
          h(
            "div",
            { class: "row" },
            filterInput(query, "filter", "filter", {
              type: "search",
              placeholder: "name, state, model, finding",
            }),
            filterInput(query, "ticked", "ticked only", { type: "checkbox" }),
            h(
              "span",
              { class: "quiet" },
              words.length || query.ticked ? `${plural(listed.length, "run")} shown` : "",
            ),
            h("span", { class: "quiet" }, "tick runs to overlay their curves"),
          ),
          table(
            [
              [""],
              header("run", "run"),
              header("state", "state"),
              header("progress", "progress"),
              header("findings", "findings"),
              header("reward", "reward, last 10 steps", "number"),
              header("evaluation", "last evaluation", "number"),
              ["criteria"],
              header("time", "time", "number"),
              header("activity", "last activity", "number"),
            ],
            listed.map((each) => runRow(each, overlaid)),
          ),
        )
      : h(
          "div",
          { class: "finding clean" },
          "No run yet. ",
          h("code", {}, "truing train tiny"),
          " makes one in under a minute; it appears here when it starts.",
        ),
    overlaid.length ? [h("h2", {}, "Overlay"), curves] : null,
    data.labs.length
      ? [
          h("h2", {}, "Labs"),
          h(
            "ul",
            {},
            data.labs.map((name) => h("li", {}, link(address("lab", { lab: name }), name))),
          ),
        ]
      : null,
  );
  if (data.waiting) reload(300);
  if (!overlaid.length) return;
  const of = await Promise.all(overlaid.map((name) => get("curves", { run: name })));
  const boxes = compareCurves(curves, {
    runs: of,
    numbers: [...new Set(of.flatMap((each) => each.numbers))].sort(byName),
  });
  charts(() => boxes);
}

function overlayBox(run, overlaid) {
  const change = (event) => {
    // of the address and not of this page, which may be older: another box may have been ticked since
    const { query: now } = currentAddress();
    const others = JSON.parse(now.overlay || "[]").filter((each) => each !== run.run);
    const names = event.target.checked ? [...others, run.run] : others;
    navigate("runs", { ...now, overlay: names.length ? JSON.stringify(names) : "" });
  };
  return h("input", {
    type: "checkbox",
    checked: overlaid.includes(run.run),
    "aria-label": `overlay ${run.run}`,
    "data-hold": `overlay ${run.run}`,
    onchange: change,
  });
}

function runRow(run, overlaid) {
  const to = link(address("run", { run: run.run }), run.run);
  if (run.state === "cannot be read")
    return h(
      "tr",
      {},
      h("td", {}),
      h("td", { class: "wrap" }, run.run),
      h("td", {}, stateBadge(run.state)),
      h("td", { colspan: 7, class: "wrap quiet" }, run.why),
    );
  const last = lastEvaluation(run);
  return h(
    "tr",
    { class: "to" },
    h("td", {}, overlayBox(run, overlaid)),
    h("td", { class: "wrap run" }, h("b", {}, to), h("div", { class: "quiet" }, run.model), parent(run)),
    h("td", {}, stateBadge(run.state), run.why ? h("div", { class: "quiet wrap" }, run.why) : null),
    h("td", {}, progress(run)),
    h("td", {}, findingBadges(run)),
    h(
      "td",
      { class: "number" },
      interval(run.reward && { ...run.reward, supposes: "" }),
      run.reward?.supposes ? h("div", { class: "quiet" }, `assumes ${run.reward.supposes}`) : null,
    ),
    h(
      "td",
      { class: "number" },
      last
        ? [
            interval(last[1]),
            h("div", { class: "quiet" }, [last[0], sampleSize(last[1])].filter(Boolean).join(", ")),
          ]
        : "–",
    ),
    h("td", {}, criteria(run.scorecard)),
    h(
      "td",
      { class: "number" },
      duration(run.seconds),
      h("div", { class: "quiet" }, `${count(run.tokens)} tokens sampled`),
    ),
    h(
      "td",
      { class: "number" },
      ago(run.last),
      run.left ? h("div", { class: "quiet" }, `${duration(run.left)} left in ${run.at[0]}`) : null,
    ),
  );
}

function parent(run) {
  return run.parent ? h("div", { class: "quiet" }, parentLine(run.run, run.parent)) : null;
}

export function progress(run) {
  if (!run.at) return "no step yet";
  const [stage, done, steps] = run.at;
  if (run.state === "trace") return `${stage} ${done}`; // how many follow is not known
  const fill = h("i", {});
  fill.style.width = `${Math.min(100, (100 * done) / steps)}%`;
  return [
    h("div", { class: "line" }, `${stage} ${done} of ${steps}`),
    h(
      "div",
      {
        class: "bar",
        role: "progressbar",
        "aria-valuenow": done,
        "aria-valuemax": steps,
        "aria-label": stage,
      },
      fill,
    ),
  ];
}

export function findingBadges(run) {
  if (!run.findings.length) return h("span", { class: "quiet" }, "none");
  return h(
    "div",
    { class: "row" },
    run.findings.map((each) => link(address("run", { run: run.run }), verdictBadge(each.verdict, each.code))),
  );
}

export function criteria(counts) {
  const names = ["pass", "fail", "fact", "not checked"];
  return h(
    "span",
    { class: "row" },
    names
      .filter((name) => counts[name])
      .map((name) =>
        h("span", { class: `verdict ${name.split(" ")[0]}`, title: name }, `${counts[name]} ${name}`),
      ),
  );
}
