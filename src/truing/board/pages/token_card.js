// Everything recorded about one token.
import { h, number, table, verdictBadge } from "./dom.js";

const NAMES = {
  sampler: "log-prob., sampler",
  old: "log-prob., old",
  new: "log-prob., new",
  ref: "log-prob., reference",
  token_gradient: "token gradient",
};
export const ORIGINS = {
  PROMPT: "prompt",
  TEMPLATE: "chat template",
  TOOL: "tool or environment reply",
  FORCED: "forced: prefilled, or the grammar's only choice",
  SAMPLED: "sampled by the policy",
  DEMO: "demonstration",
};
const EXCLUDED_REASONS = {
  NOT_SAMPLED: "not sampled by the policy",
  STRUCTURE: "tool-call syntax, excluded by the mask",
  FORCED_ACTION: "its turn began with forced tokens",
  NOT_KEPT: "its rollout or group was dropped",
  CUT: "its rollout was truncated",
  OTHER_CONVERSATION: "of a conversation that is not trained",
};

function streamLabel(stream) {
  return NAMES[stream] || stream.replace("_", " ");
}

// data: the tokens' streams; t: the token; found: findings that mark it; open: whether definitions are shown.
export function tokenCard(data, t, found, open) {
  const i = t - data.start;
  const masks = Object.keys(data.masks).filter((name) => data.masks[name][i]);
  const reason = EXCLUDED_REASONS[data.origin[i] === "SAMPLED" ? data.excluded[i] : "NOT_SAMPLED"];
  const streams = Object.entries(data.numbers);
  const row = ([name, stream]) =>
    h(
      "tr",
      { title: data.meaning[name] },
      h("td", {}, streamLabel(name)),
      h("td", { class: "number" }, number(stream[i], 5)),
    );
  return [
    h(
      "div",
      { class: "row" },
      h("b", {}, `token ${t}`),
      h("span", { class: "quiet" }, `id ${data.ids[i]}`),
      h("span", { class: data.origin[i], title: ORIGINS[data.origin[i]] }, data.origin[i]),
    ),
    h("pre", {}, data.texts[i].replaceAll("\n", "⏎\n").replaceAll(" ", "·")),
    h(
      "p",
      {},
      data.trained[i] ? "trained" : `not trained${reason ? `: ${reason}` : ""}`,
      data.clipped[i] ? h("b", {}, " · clipped: zero policy gradient") : "",
    ),
    masks.length ? h("p", { class: "quiet" }, `masks: ${masks.join(", ")}`) : null,
    ...found.map((each) => h("p", {}, verdictBadge(each.verdict, each.code), " ", each.what)),
    table([["value"], ["", "number"]], streams.map(row)),
    h(
      "details",
      { open },
      h("summary", {}, "definitions"),
      h(
        "dl",
        {},
        streams.map(([name]) => [h("dt", {}, streamLabel(name)), h("dd", {}, data.meaning[name])]),
      ),
    ),
  ];
}
