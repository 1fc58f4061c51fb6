// The tokens of a sample as blocks: what the policy was shown, and each of its turns; and windows of them put together.
import { number } from "./dom.js";

export function blocks(turns, start, end) {
  const found = [];
  let place = 0;
  turns.forEach((turn, i) => {
    if (turn.start > place)
      found.push({
        start: place,
        end: turn.start,
        says: i ? "what the world answered, and glue" : "what the policy was shown",
      });
    const reward = turn.reward === null ? "" : ` · reward ${number(turn.reward)}`;
    found.push({
      start: turn.start,
      end: turn.end,
      turn,
      says: `turn ${i + 1} · ${turn.finish} · by weights ${turn.version} (${turn.digest.slice(0, 8)})${reward}`,
    });
    place = turn.end;
  });
  found.push({ start: place, end: Infinity, says: turns.length ? "behind the last turn" : "no turn" });
  return found
    .map((each) => ({ ...each, start: Math.max(each.start, start), end: Math.min(each.end, end) }))
    .filter((each) => each.start < each.end);
}

export function joined(first, second) {
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
