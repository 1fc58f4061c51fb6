// Two runs beside each other: which is better and how sure, what was declared otherwise, where they part, their curves.
import { ends, fill, h, interval, link, number, plural, state, table, tile } from "./dom.js";
import { address, get, go } from "./data.js";
import { curves, swatch } from "./curves.js";

export async function compare(page, query, context) {
  const runs = (await get("runs")).runs.map((each) => each.run);
  const choose = (name) =>
    h(
      "label",
      {},
      name === "a" ? "first" : "second",
      h(
        "select",
        { "aria-label": name, onchange: (event) => go("compare", { ...query, [name]: event.target.value }) },
        ["", ...runs].map((each) =>
          h("option", { value: each, selected: query[name] === each }, each || "choose a run"),
        ),
      ),
    );
  const body = h("div", {});
  fill(page, h("h1", {}, "Compare"), h("p", { class: "row" }, choose("a"), choose("b")), body);
  if (!query.a || !query.b)
    return fill(
      body,
      h(
        "p",
        { class: "quiet" },
        "Two runs of one seed part where something was changed; two seeds part at once.",
      ),
    );
  const told = await get("compare", { a: query.a, b: query.b });
  const parts = h("div", {}, h("p", { class: "quiet" }, "comparing token by token …"));
  const charts = h("div", {});
  fill(
    body,
    h(
      "div",
      { class: "tiles" },
      told.runs.map((each, i) =>
        h(
          "div",
          { class: "tile" },
          h("div", { class: "name" }, swatch(i), i ? "second" : "first"),
          h("div", {}, link(address("run", { run: each.run }), each.run), " ", state(each.state)),
          h("div", { class: "value" }, interval(each.reward)),
          h("div", { class: "more" }, "reward in training, last 10 updates"),
        ),
      ),
      told.gains.slice(-1).map(last),
    ),
    h("h2", {}, "Which is better"),
    gains(told),
    h("h2", {}, "What was declared otherwise"),
    deltas([...told.recipe, ...told.facts]),
    h("h2", {}, "Where they part"),
    parts,
    h("h2", {}, "Curves"),
    charts,
  );
  const boxes = curves(charts, told);
  context.keep(() => boxes);
  get("parting", { a: query.a, b: query.b }).then(
    (found) => fill(parts, parting(found, query, told.gains)),
    (error) => fill(parts, h("div", { class: "error" }, error.message)),
  );
}

// A difference with its sign, and the ends of its interval with theirs.
function signed(value) {
  if (typeof value !== "number") return number(value);
  return `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(value).toFixed(3)}`;
}

function difference(each) {
  const known = each.paired && each.paired.low !== null;
  return signed(each.difference) + (known ? ` ${ends(each.paired, signed)}` : "");
}

function over(each) {
  const moved = each.up || each.down ? `: up on ${each.up}, down on ${each.down}` : "";
  return plural(each.paired.tasks, "task") + moved;
}

const title = (name) => name.replaceAll("_", " ");

function last(each) {
  const more = each.paired ? `${each.says} · 95 % over ${over(each)}` : each.says;
  return tile(`second − first, evaluation ${title(each.name)}`, difference(each), more);
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

const HEAD = "second − first, task by task, 95 % over tasks, each line by itself";

function gains(told) {
  const seeds = h("p", { class: "quiet" }, sentence(told.seeds));
  if (!told.gains.length)
    return [h("p", {}, "Nobody can tell: no evaluation of one name is on record of both."), seeds];
  const rows = told.gains.map((each) =>
    h(
      "tr",
      {},
      h("td", {}, title(each.name)),
      [each.first, each.second].map((one) =>
        h("td", { class: "number" }, interval(one), h("div", { class: "quiet" }, tasks(one))),
      ),
      h(
        "td",
        { class: "number" },
        h("b", {}, difference(each)),
        h("div", { class: "quiet" }, each.paired ? over(each) : ""),
      ),
      h("td", { class: "wrap" }, each.says),
    ),
  );
  const columns = [["evaluation"], [[swatch(0), "first"], "number"], [[swatch(1), "second"], "number"]];
  return [
    table([...columns, [HEAD, "number"], [""]], rows),
    seeds,
  ];
}

function tasks(estimate) {
  return typeof estimate.tasks === "number" ? plural(estimate.tasks, "task") : "";
}

function deltas(found) {
  if (!found.length) return h("p", {}, "Nothing: the same recipe, model, tasks, versions and machine.");
  return table(
    [["key"], ["first"], ["second"]],
    found.map((each) =>
      h(
        "tr",
        {},
        h("td", { class: "mono" }, each.key),
        h("td", { class: "wrap mono" }, each.first),
        h("td", { class: "wrap mono" }, each.second),
      ),
    ),
  );
}

function parting(found, query, compared) {
  const at = found.parting;
  const above = new Set(compared.map((each) => `eval ${each.name}`));
  const rest = found.beside.filter((each) => !above.has(each.name));
  const beside = rest.map((each) =>
    h(
      "tr",
      {},
      h("td", { class: "mono" }, each.name),
      h("td", { class: "number" }, told(each.first)),
      h("td", { class: "number" }, told(each.second)),
    ),
  );
  return [
    found.note ? h("p", {}, sentence(found.note)) : null,
    at
      ? h(
          "div",
          { class: "finding SUSPECT" },
          h("b", {}, `${at.stage} ${at.update}: ${at.what}`),
          at.sample_id
            ? [
                " of sample ",
                ...["a", "b"].map((name) => [
                  link(
                    address("sample", {
                      run: query[name],
                      stage: at.stage,
                      update: at.update,
                      sample: at.sample_id,
                      token: at.token,
                    }),
                    `${at.sample_id} of ${query[name]}`,
                  ),
                  " ",
                ]),
              ]
            : "",
          h(
            "dl",
            {},
            h("dt", {}, "first"),
            h("dd", { class: "mono" }, told(at.first)),
            h("dt", {}, "second"),
            h("dd", { class: "mono" }, told(at.second)),
          ),
          h("p", { class: "quiet" }, [apart(at), same(found.same)].filter(Boolean).join(" ")),
        )
      : h(
          "div",
          { class: "finding clean" },
          `The first ${found.same} updates are the same, token by token.${found.same >= found.looked_at ? " truing compare looks at all." : ""}`,
        ),
    found.words ? words(found.words, query) : null,
    at ? table([["what each came to"], ["first", "number"], ["second", "number"]], beside) : null,
  ];
}

const apart = (at) => (at.tokens ? `Token ${at.token}; ${at.tokens} of that row differ.` : "");

function same(updates) {
  if (!updates) return "It is the first of the run.";
  return `The ${plural(updates, "update")} before ${updates === 1 ? "is" : "are"} the same, token by token.`;
}

function told(value) {
  return typeof value === "number" ? number(value) : value === null ? "–" : String(value);
}

// The first answer that reads otherwise, as both runs have it.
function words(found, query) {
  const at = { stage: found.stage, update: found.update, sample: found.sample, token: found.token };
  return [
    h(
      "h3",
      { class: "gap" },
      `The first answer that reads otherwise: ${found.stage} ${found.update}, ${found.task}`,
    ),
    h(
      "div",
      { class: "sides" },
      found.sides.map((side, i) => {
        const run = i ? query.b : query.a;
        return h(
          "section",
          { class: "side" },
          h(
            "div",
            { class: "row" },
            swatch(i),
            link(address("sample", { run, ...at }), run),
            `reward ${number(side.reward)}`,
          ),
          h(
            "div",
            { class: "excerpt mono" },
            side.cut ? h("span", { class: "quiet" }, "… ") : null,
            side.before,
            side.token ? h("mark", {}, side.token) : h("span", { class: "quiet" }, " ends here"),
            side.after,
            side.more ? h("span", { class: "quiet" }, ` … ${plural(side.more, "token")} more`) : null,
          ),
        );
      }),
    ),
  ];
}
