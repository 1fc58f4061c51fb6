// The overview: every run in a line.
import { ago, basis, count, duration, fill, h, interval } from "./dom.js";
import { link, plural, state, table, verdict } from "./dom.js";
import { address, get } from "./data.js";

export async function runs(page, _query, { again }) {
  const told = await get("runs");
  const shown = told.runs.map(line);
  fill(
    page,
    h("h1", {}, "Runs"),
    h(
      "p",
      { class: "quiet" },
      `${plural(told.runs.length, "run")} under ${told.root}`,
      told.waiting ? ` · reading ${told.waiting} more …` : "",
    ),
    told.notes.map((each) => h("p", { class: "quiet" }, each)),
    told.runs.length
      ? table(
          [
            ["run"],
            ["state"],
            ["at"],
            ["findings"],
            ["reward, last 10 updates", "number"],
            ["last evaluation", "number"],
            ["criteria"],
            ["cost", "number"],
            ["last word", "number"],
          ],
          shown,
        )
      : h(
          "div",
          { class: "finding clean" },
          "No run yet. ",
          h("code", {}, "truing train tiny"),
          " makes one in under a minute; it appears here as it starts.",
        ),
    told.labs.length
      ? [
          h("h2", {}, "Labs"),
          h(
            "ul",
            {},
            told.labs.map((name) => h("li", {}, link(address("lab", { lab: name }), name))),
          ),
        ]
      : null,
    told.audits.length
      ? [
          h("h2", {}, "Audits of other trainers"),
          h(
            "ul",
            {},
            told.audits.map((name) => h("li", {}, link(address("audit", { audit: name }), name))),
          ),
        ]
      : null,
  );
  if (told.waiting) again(300);
}

function line(run) {
  const to = link(address("run", { run: run.run }), run.run);
  if (run.state === "cannot be read")
    return h(
      "tr",
      {},
      h("td", { class: "wrap" }, run.run),
      h("td", {}, state(run.state)),
      h("td", { colspan: 7, class: "wrap quiet" }, run.why),
    );
  const evaluations = Object.entries(run.evaluations);
  const last = evaluations[evaluations.length - 1];
  return h(
    "tr",
    { class: "to" },
    h("td", { class: "wrap run" }, h("b", {}, to), h("div", { class: "quiet" }, run.model)),
    h("td", {}, state(run.state), run.why ? h("div", { class: "quiet wrap" }, run.why) : null),
    h("td", {}, progress(run)),
    h("td", {}, found(run)),
    h("td", { class: "number" }, interval(run.reward)),
    h(
      "td",
      { class: "number" },
      last
        ? [
            interval(last[1]),
            h("div", { class: "quiet" }, [last[0], basis(last[1])].filter(Boolean).join(", ")),
          ]
        : "–",
    ),
    h("td", {}, criteria(run.scorecard)),
    h(
      "td",
      { class: "number" },
      duration(run.seconds),
      h("div", { class: "quiet" }, `${count(run.tokens)} tokens drawn`),
    ),
    h(
      "td",
      { class: "number" },
      ago(run.last),
      run.left ? h("div", { class: "quiet" }, `${duration(run.left)} left of ${run.at[0]}`) : null,
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

export function found(run) {
  if (!run.findings.length) return h("span", { class: "quiet" }, "none");
  return h(
    "div",
    { class: "row" },
    run.findings.map((each) => link(address("run", { run: run.run }), verdict(each.verdict, each.code))),
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
