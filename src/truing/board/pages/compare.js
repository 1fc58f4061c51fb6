// Two runs beside each other: what was declared otherwise, where they part, and their curves in one chart.
import { fill, h, interval, link, number, state, table } from "./dom.js";
import { address, get, go } from "./data.js";
import { colour, inert, plot } from "./chart.js";

const SHOWN = [
  "reward/mean",
  "entropy/drawn",
  "kl_all/k3",
  "length/mean",
  "grad/norm",
  "group/zero_variance_share",
  "loss/supervised",
  "ratio/std",
];

export async function compare(page, query) {
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
  const charts = h("div", { class: "charts" });
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
          h("div", { class: "more" }, "reward, last 10 updates"),
        ),
      ),
    ),
    h("h2", {}, "What was declared otherwise"),
    deltas([...told.recipe, ...told.facts]),
    h("h2", {}, "Where they part"),
    parts,
    h("h2", {}, "Curves"),
    picker(told, charts),
    charts,
  );
  for (const name of SHOWN.filter((each) => told.numbers.includes(each))) curve(charts, told, name);
  get("parting", { a: query.a, b: query.b }).then(
    (found) => fill(parts, parting(found, query)),
    (error) => fill(parts, h("div", { class: "error" }, error.message)),
  );
}

function swatch(index) {
  const line = h("i", { class: "swatch" });
  line.style.background = colour(index);
  return line;
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

function parting(found, query) {
  const at = found.parting;
  const beside = found.beside.map((each) =>
    h(
      "tr",
      {},
      h("td", { class: "mono" }, each.name),
      h("td", { class: "number" }, told(each.first)),
      h("td", { class: "number" }, told(each.second)),
    ),
  );
  return [
    found.note ? h("p", {}, found.note) : null,
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
          at.tokens
            ? h(
                "p",
                { class: "quiet" },
                `token ${at.token}; ${at.tokens} of that row differ. The ${found.same} updates before are the same, token by token.`,
              )
            : null,
        )
      : h(
          "div",
          { class: "finding clean" },
          `The first ${found.same} updates are the same, token by token.${found.same >= found.looked_at ? " truing compare looks at all." : ""}`,
        ),
    at ? table([["what each came to"], ["first", "number"], ["second", "number"]], beside) : null,
  ];
}

function told(value) {
  return typeof value === "number" ? number(value) : value === null ? "–" : String(value);
}

function picker(run, charts) {
  return h(
    "p",
    {},
    h(
      "label",
      {},
      "one more number",
      h(
        "select",
        {
          onchange: (event) => {
            curve(charts, run, event.target.value);
            event.target.value = "";
          },
        },
        ["", ...run.numbers].map((each) => h("option", { value: each }, each)),
      ),
    ),
  );
}

async function curve(charts, told, name) {
  const area = h("div", { class: "plot" });
  const box = h("figure", { class: "chart" }, h("h3", {}, name), area);
  charts.append(box);
  const both = await Promise.all(told.runs.map((each) => get("number", { run: each.run, number: name })));
  const traces = both.flatMap((each, i) =>
    each.series.map((series) => ({
      type: "scatter",
      mode: "lines",
      x: series.x,
      y: series.y,
      name: inert(told.runs[i].run),
      line: { color: colour(i), width: 1.6 },
      hovertemplate: "%{y:.4g}",
    })),
  );
  plot(area, traces, {
    xaxis: { title: { text: "update of the run", standoff: 4 } },
    yaxis: { title: { text: both[0].units.map(inert).join(", "), standoff: 4 } },
  });
}
