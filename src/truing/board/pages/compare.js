// Compares two runs: which is better, differences of configuration, the first difference, and curves.
import { byName, h, interval, intervalBounds, link, number } from "./dom.js";
import { plural, setChildren, signed, stateBadge, table, tile } from "./dom.js";
import { address, get, navigate } from "./api.js";
import { compareCurves, swatch } from "./compare_curves.js";

export async function compare(page, query, context) {
  const listed = await get("runs"); // those that are read so far
  const known = [...listed.runs.map((each) => each.run), query.a, query.b].filter(Boolean);
  const runs = [...new Set(known)].sort(byName);
  const choose = (name) =>
    h(
      "label",
      {},
      name === "a" ? "first" : "second",
      h(
        "select",
        {
          "aria-label": name,
          onchange: (event) => navigate("compare", { ...query, [name]: event.target.value }),
        },
        ["", ...runs].map((each) =>
          h("option", { value: each, selected: query[name] === each }, each || "choose a run"),
        ),
        listed.waiting
          ? h("option", { disabled: true }, `${plural(listed.waiting, "run")} to read: open this page again`)
          : null,
      ),
    );
  const body = h("div", {});
  setChildren(page, h("h1", {}, "Compare"), h("p", { class: "row" }, choose("a"), choose("b")), body);
  if (!query.a || !query.b)
    return setChildren(
      body,
      h(
        "p",
        { class: "quiet" },
        "Runs with the same seed differ from the first changed step on; runs with different seeds differ at once.",
      ),
    );
  const data = await get("compare", { a: query.a, b: query.b });
  const parts = h("div", {}, h("p", { class: "quiet" }, "comparing token by token …"));
  const charts = h("div", {});
  setChildren(
    body,
    h(
      "div",
      { class: "tiles" },
      data.runs.map((each, i) =>
        h(
          "div",
          { class: "tile" },
          h("div", { class: "name" }, swatch(i), i ? "second" : "first"),
          h("div", {}, link(address("run", { run: each.run }), each.run), " ", stateBadge(each.state)),
          h("div", { class: "value" }, interval(each.reward)),
          h("div", { class: "more" }, "reward in training, last 10 steps"),
        ),
      ),
      data.gains.slice(-1).map(lastGainTile),
    ),
    h("h2", {}, "Which run is better"),
    gains(data),
    h("h2", {}, "Configuration differences"),
    differencesTable([...data.recipe, ...data.facts]),
    h("h2", {}, "First difference"),
    parts,
    h("h2", {}, "Curves"),
    charts,
  );
  const boxes = compareCurves(charts, data);
  context.charts(() => boxes);
  get("compare_tokens", { a: query.a, b: query.b }).then(
    (found) => setChildren(parts, firstDifference(found, query, data.gains)),
    (error) => setChildren(parts, h("div", { class: "error" }, error.message)),
  );
}

// A difference with its sign; so are the bounds of its interval.
function difference(each) {
  const known = each.paired && each.paired.low !== null;
  return signed(each.difference) + (known ? ` ${intervalBounds(each.paired, signed)}` : "");
}

function tasksText(each) {
  const moved = each.up || each.down ? `: up on ${each.up}, down on ${each.down}` : "";
  return plural(each.paired.tasks, "task") + moved;
}

const title = (name) => name.replaceAll("_", " ");

function lastGainTile(each) {
  const more = each.paired ? `${each.says} · 95 % over ${tasksText(each)}` : each.says;
  return tile(`second − first, evaluation ${title(each.name)}`, difference(each), more);
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

const HEAD = "second − first, paired by task, 95 % interval over tasks, each line separately";

function gains(data) {
  const seeds = h("p", { class: "quiet" }, sentence(data.seeds));
  if (!data.gains.length) return [h("p", {}, "No evaluation is recorded in both runs."), seeds];
  const rows = data.gains.map((each) =>
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
        h("div", { class: "quiet" }, each.paired ? tasksText(each) : ""),
      ),
      h("td", { class: "wrap" }, each.says),
    ),
  );
  const columns = [["evaluation"], [[swatch(0), "first"], "number"], [[swatch(1), "second"], "number"]];
  return [table([...columns, [HEAD, "number"], [""]], rows), seeds];
}

function tasks(estimate) {
  return typeof estimate.tasks === "number" ? plural(estimate.tasks, "task") : "";
}

function differencesTable(found) {
  if (!found.length)
    return h("p", {}, "None: what both record of recipe, model, tasks, versions and machine is the same.");
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

function firstDifference(found, query, compared) {
  const at = found.first_difference;
  const above = new Set(compared.map((each) => `eval ${each.name}`));
  const rest = found.beside.filter((each) => !above.has(each.name));
  const beside = rest.map((each) =>
    h(
      "tr",
      {},
      h("td", { class: "mono" }, each.name),
      h("td", { class: "number" }, data(each.first)),
      h("td", { class: "number" }, data(each.second)),
    ),
  );
  return [
    found.note ? h("p", {}, sentence(found.note)) : null,
    at
      ? h(
          "div",
          { class: "finding SUSPECT" },
          h("b", {}, `${at.stage} ${at.step}: ${at.what}`),
          at.sample_id
            ? [
                " of sample ",
                ...["a", "b"].map((name) => [
                  link(
                    address("sample", {
                      run: query[name],
                      stage: at.stage,
                      step: at.step,
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
            h("dd", { class: "mono" }, data(at.first)),
            h("dt", {}, "second"),
            h("dd", { class: "mono" }, data(at.second)),
          ),
          h(
            "p",
            { class: "quiet" },
            [tokenDifferenceText(at), sameStepsText(found.same)].filter(Boolean).join(" "),
          ),
        )
      : h(
          "div",
          { class: "finding clean" },
          `The first ${found.same} steps are the same, token by token.${found.same >= found.looked_at ? " truing compare checks all steps." : ""}`,
        ),
    found.words ? textDifference(found.words, query) : null,
    at ? table([["results"], ["first", "number"], ["second", "number"]], beside) : null,
  ];
}

const tokenDifferenceText = (at) =>
  at.tokens
    ? `Token ${at.token}; ${plural(at.tokens, "token")} of this sample ${at.tokens === 1 ? "differs" : "differ"}.`
    : "";

function sameStepsText(steps) {
  if (!steps) return "It is the first step of the run.";
  return `The ${plural(steps, "step")} before ${steps === 1 ? "is" : "are"} the same, token by token.`;
}

function data(value) {
  return typeof value === "number" ? number(value) : value === null ? "–" : String(value);
}

// The first answer that differs, in both runs.
function textDifference(found, query) {
  const at = { stage: found.stage, step: found.step, sample: found.sample, token: found.token };
  return [
    h("h3", { class: "gap" }, `First answer that differs: ${found.stage} ${found.step}, ${found.task}`),
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
