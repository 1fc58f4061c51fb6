// The glossary: terms of the pages and their definitions.
import { h, setChildren } from "./dom.js";
import { get } from "./api.js";

export async function glossary(page) {
  const data = await get("words");
  setChildren(
    page,
    h("h1", {}, "Glossary"),
    data.map((topic) => [
      h("h2", {}, topic.title),
      h(
        "dl",
        { class: "glossary" },
        topic.words.map((each) => [h("dt", {}, each.names.join(", ")), h("dd", {}, each.means)]),
      ),
    ]),
  );
}
