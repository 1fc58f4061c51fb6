// What the words on these pages mean.
import { fill, h } from "./dom.js";
import { get } from "./data.js";

export async function glossary(page) {
  const told = await get("words");
  fill(
    page,
    h("h1", {}, "Words"),
    told.map((topic) => [
      h("h2", {}, topic.title),
      h(
        "dl",
        { class: "glossary" },
        topic.words.map((each) => [h("dt", {}, each.names.join(", ")), h("dd", {}, each.means)]),
      ),
    ]),
  );
}
