// The card of a second grader, which never pays: its gain beside the paid one, and answers that it refuses.
import { count, h, intervalBounds, link, number, sampleSize, signed, table } from "./dom.js";
import { address, hasAnswer } from "./api.js";
import { answerCells } from "./answers.js";

export function secondGrader(data) {
  if (!data.second) return null;
  const { gains, refused, refused_count: many, evaluation } = data.second;
  const denied = gains !== null && gains.denied;
  const query = { run: data.run, evaluation, refused: "1" };
  const all = `${count(many)} of ${evaluation.replaceAll("_", " ")}`;
  return h(
    "section",
    { class: `finding ${denied ? "EVIDENCE" : ""}`, "aria-label": "second grader" },
    h("b", {}, denied ? "The reward is hacked" : "Second grader"),
    gains
      ? h(
          "p",
          { class: "wrap" },
          `${gains.stage}: paid ${gain(gains.paid)}, by the second grader ${gain(gains.second)} of ${sampleSize(gains.paid)}`,
        )
      : h("p", { class: "quiet" }, "No two evaluations of a policy stage yet."),
    denied ? h("p", { class: "quiet" }, "If the answers below are right, the second grader is wrong.") : null,
    many
      ? h(
          "details",
          { open: denied },
          h(
            "summary",
            {},
            "answers that are paid, and that the second grader gives less: ",
            hasAnswer("answers", query) ? link(address("answers", query), all) : all,
          ),
          table(
            [["paid", "number"], ["second grader", "number"], ["answer"], ["right answer"], ["task"]],
            refused.map(refusedRow),
          ),
        )
      : null,
  );
}

function refusedRow(each) {
  return h(
    "tr",
    {},
    h("td", { class: "number" }, number(each.paid)),
    h("td", { class: "number" }, number(each.second)),
    answerCells(each),
  );
}

function gain(paired) {
  return signed(paired.mean) + (paired.low === null ? "" : ` ${intervalBounds(paired, signed)}`);
}
