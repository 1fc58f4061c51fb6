// Splits the tokens of a sample into blocks (prompt, turns, replies), and joins windows of tokens.
import { number } from "./dom.js";

export function tokenBlocks(turns, start, end) {
  const found = [];
  let turnEnd = 0;
  turns.forEach((turn, i) => {
    if (turn.start > turnEnd)
      found.push({
        start: turnEnd,
        end: turn.start,
        label: i ? "Environment reply and template" : "Prompt",
      });
    const known = turn.digest && turn.digest !== `version ${turn.version}`;
    const digest = known ? ` (${turn.digest.slice(0, 8)})` : "";
    const weights = turn.digest && `weights version ${turn.version}${digest}`;
    const reward = turn.reward === null ? "" : `reward ${number(turn.reward)}`;
    found.push({
      start: turn.start,
      end: turn.end,
      turn,
      label: [`Turn ${i + 1}`, turn.finish, weights, reward].filter(Boolean).join(" · "),
    });
    turnEnd = turn.end;
  });
  found.push({ start: turnEnd, end: Infinity, label: turns.length ? "After the last turn" : "No turn" });
  return found
    .map((each) => ({ ...each, start: Math.max(each.start, start), end: Math.min(each.end, end) }))
    .filter((each) => each.start < each.end);
}

export function concatWindows(first, second) {
  const lists = ["ids", "texts", "origin", "excluded", "trained", "clipped"].map((name) => [
    name,
    [...first[name], ...second[name]],
  ]);
  const unknown = (part) => part.ids.map(() => null);
  const both = (kind) =>
    Object.fromEntries(
      [...new Set([...Object.keys(first[kind]), ...Object.keys(second[kind])])].map((name) => [
        name,
        [...(first[kind][name] || unknown(first)), ...(second[kind][name] || unknown(second))],
      ]),
    );
  return {
    ...first,
    ...Object.fromEntries(lists),
    masks: both("masks"),
    numbers: both("numbers"),
    end: second.end,
  };
}
