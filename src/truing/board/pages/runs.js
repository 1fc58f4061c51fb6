// The overview: one row per run.
import { ago, count, duration, h, interval, sampleSize, setChildren } from "./dom.js";
import { link, plural, stateBadge, table, verdictBadge } from "./dom.js";
import { address, get } from "./api.js";

export async function runs(page, _query, { reload }) {
  const data = await get("runs");
  const shown = data.runs.map(runRow);
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
      ? table(
          [
            ["run"],
            ["state"],
            ["progress"],
            ["findings"],
            ["reward, last 10 updates", "number"],
            ["last evaluation", "number"],
            ["criteria"],
            ["time", "number"],
            ["last activity", "number"],
          ],
          shown,
        )
      : h(
          "div",
          { class: "finding clean" },
          "No run yet. ",
          h("code", {}, "truing train tiny"),
          " makes one in under a minute; it appears here when it starts.",
        ),
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
    data.audits.length
      ? [
          h("h2", {}, "Audits of other trainers"),
          h(
            "ul",
            {},
            data.audits.map((name) => h("li", {}, link(address("audit", { audit: name }), name))),
          ),
        ]
      : null,
  );
  if (data.waiting) reload(300);
}

function runRow(run) {
  const to = link(address("run", { run: run.run }), run.run);
  if (run.state === "cannot be read")
    return h(
      "tr",
      {},
      h("td", { class: "wrap" }, run.run),
      h("td", {}, stateBadge(run.state)),
      h("td", { colspan: 7, class: "wrap quiet" }, run.why),
    );
  const evaluations = Object.entries(run.evaluations);
  const last = evaluations[evaluations.length - 1];
  return h(
    "tr",
    { class: "to" },
    h("td", { class: "wrap run" }, h("b", {}, to), h("div", { class: "quiet" }, run.model)),
    h("td", {}, stateBadge(run.state), run.why ? h("div", { class: "quiet wrap" }, run.why) : null),
    h("td", {}, progress(run)),
    h("td", {}, findingBadges(run)),
    h("td", { class: "number" }, interval(run.reward)),
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

export function progress(run) {
  if (!run.at) return "no update yet";
  const [stage, done, steps] = run.at;
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
