// Forks: of which run a run is one, and the experiment on a run, with its arms and its pairs of forks.
import { fixed, h, intervalBounds, link, number, signed, table, verdictBadge } from "./dom.js";
import { address } from "./api.js";

// One line about the parent of a fork; more: further parts of the line.
export function parentLine(run, parent, ...more) {
  const name = parent.run === null ? parent.name : link(address("run", { run: parent.run }), parent.run);
  const both = parent.run === null ? null : [" · ", overlay([parent.run, run], "overlay both")];
  return ["fork of ", name, ` after ${parent.stage} ${parent.step}`, both, ...more];
}

export function overlay(names, label) {
  return link(address("runs", { overlay: JSON.stringify(names), ticked: "1" }), label);
}

const SAID = { helps: ["pass", "helps"], hurts: ["fail", "hurts"], open: ["not", "no effect is proven"] };

// The answer of an experiment, its arms, and its forks by pair.
export function experiment(run, data) {
  return [
    h("p", { class: "wrap" }, h("b", {}, data.answer)),
    h(
      "p",
      { class: "quiet" },
      `Forks after ${data.stage} ${data.at}, with ${data.steps} more steps each. The effect of an arm is the mean difference of its rewards to those of the unchanged forks, pair by pair. Later pairs have the best arms alone.`,
    ),
    table(
      [["arm and verdict"], ["effect", "number"], ["pairs", "number"], ["e-value", "number"]],
      data.arms.map(armRow),
    ),
    data.left_out.map((each) => h("p", { class: "quiet wrap" }, `left out: ${each}`)),
    data.pairs.length ? pairs(run, data) : null,
  ];
}

function armRow(each) {
  const [kind, text] = SAID[each.verdict];
  return h(
    "tr",
    {},
    h(
      "td",
      { class: "wrap run" },
      h("div", { class: "row" }, h("b", { class: "mono" }, each.changes.join(" ")), verdictBadge(kind, text)),
      h("div", {}, each.name),
      h("div", { class: "quiet" }, each.because),
    ),
    h("td", { class: "number" }, effect(each)),
    h("td", { class: "number" }, each.pairs),
    h(
      "td",
      { class: "number" },
      number(each.e_value, 3),
      h("div", { class: "quiet" }, `decides from ${number(each.needed, 3)}`),
    ),
  );
}

// The mean difference to the unchanged forks, with its bounds once there are enough pairs for both.
function effect(each) {
  if (each.effect === null) return "–";
  const bounded = typeof each.low === "number" && typeof each.high === "number";
  return [signed(each.effect), bounded ? h("div", { class: "quiet" }, intervalBounds(each, signed)) : null];
}

function pairs(run, data) {
  const columns = ["unchanged", ...data.arms.map((each) => each.changes.join(" "))].map((name) => [name]);
  const rows = data.pairs.map((forks, i) => {
    const made = forks.filter((each) => each.run !== null);
    const names = [run, ...made.map((each) => each.run)];
    return h(
      "tr",
      { class: "to" },
      h("td", {}, i + 1),
      forks.map((each) =>
        h("td", {}, each.run === null ? "–" : link(address("run", { run: each.run }), forkReward(each))),
      ),
      h("td", {}, overlay(names, "overlay")),
    );
  });
  return h(
    "details",
    { open: true, class: "gap" },
    h("summary", {}, "forks by pair, each with its reward"),
    table([["pair"], ...columns, [""]], rows),
  );
}

function forkReward(each) {
  return each.reward === null ? "not finished" : fixed(each.reward);
}
