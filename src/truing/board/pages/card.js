// All that is on record of one token.
import { h, number, table, verdict } from "./dom.js";

const NAMES = {
  sampler: "log-prob., sampler",
  old: "log-prob., old",
  new: "log-prob., new",
  ref: "log-prob., reference",
};
export const ORIGINS = {
  PROMPT: "the task's messages",
  TEMPLATE: "glue of the chat template",
  TOOL: "what the world answered",
  FORCED: "injected, or the only choice",
  SAMPLED: "the policy's choice",
  DEMO: "a demonstration",
};
const WHY = {
  NOT_SAMPLED: "the policy did not choose it",
  STRUCTURE: "scaffolding of a call, by the mask policy",
  FORCED_ACTION: "its turn began with forced tokens",
  NOT_KEPT: "its rollout, or its group, was left out",
  CUT: "its rollout was cut",
};

function nameOf(stream) {
  return NAMES[stream] || stream.replace("_", " ");
}

// told: the tokens' streams; t: the token; found: findings that mean it; open: whether words are explained.
export function about(told, t, found, open) {
  const i = t - told.start;
  const masks = Object.keys(told.masks).filter((name) => told.masks[name][i]);
  const reason = WHY[told.origin[i] === "SAMPLED" ? told.excluded[i] : "NOT_SAMPLED"];
  const streams = Object.entries(told.numbers);
  const row = ([name, stream]) =>
    h(
      "tr",
      { title: told.meaning[name] },
      h("td", {}, nameOf(name)),
      h("td", { class: "number" }, number(stream[i], 5)),
    );
  return [
    h(
      "div",
      { class: "row" },
      h("b", {}, `token ${t}`),
      h("span", { class: "quiet" }, `id ${told.ids[i]}`),
      h("span", { class: told.origin[i], title: ORIGINS[told.origin[i]] }, told.origin[i]),
    ),
    h("pre", {}, told.texts[i].replaceAll("\n", "⏎\n").replaceAll(" ", "·")),
    h(
      "p",
      {},
      told.trained[i] ? "trained" : `not trained: ${reason}`,
      told.clipped[i] ? h("b", {}, " · clipped: the policy loss pulls at it no more") : "",
    ),
    masks.length ? h("p", { class: "quiet" }, `masks: ${masks.join(", ")}`) : null,
    ...found.map((each) => h("p", {}, verdict(each.verdict, each.code), " ", each.what)),
    table([["number"], ["", "number"]], streams.map(row)),
    h(
      "details",
      { open },
      h("summary", {}, "what these are"),
      h(
        "dl",
        {},
        streams.map(([name]) => [h("dt", {}, nameOf(name)), h("dd", {}, told.meaning[name])]),
      ),
    ),
  ];
}
