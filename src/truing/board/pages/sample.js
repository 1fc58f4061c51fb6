// A sample token by token, and a group of samples side by side.
import { findingCodes, h, link, number, plural, sampleLink, setChildren, tile } from "./dom.js";
import { address, get, hasAnswer } from "./api.js";
import { finding } from "./finding.js";
import { legend, nextTint, tintSelect, TokenView } from "./tokens.js";

export async function sample(page, query, context) {
  const question = { run: query.run, stage: query.stage, step: query.step };
  const whole = { ...question, sample: query.sample };
  const there = { ...whole, token: query.token };
  const data = await get("sample", hasAnswer("sample", there) ? there : whole);
  const about = data.about;
  const view = new TokenView(data, query);
  setChildren(
    page,
    crumbs(query),
    h(
      "div",
      { class: "row" },
      h("h1", {}, about.sample),
      h("span", { class: "grow" }),
      about.group ? link(address("group", { ...question, group: about.group }), "Compare group") : null,
      previousNext(query, data),
    ),
    data.findings.map((each) => finding(each, query.run)),
    h(
      "div",
      { class: "tiles" },
      tile(
        "reward",
        number(about.reward),
        Object.entries(about.parts)
          .map(([name, value]) => `${name} ${number(value, 3)}`)
          .join(", "),
      ),
      tile(
        "advantage",
        number(about.advantage),
        about.computed ? "" : "not computed: no loss term has a gradient here",
      ),
      tile("tokens", String(about.length), `${about.sampled} sampled, ${about.trained} trained`),
      tile(
        "finish reason",
        about.finish || about.status || "–",
        [about.status, about.ended_by && `by ${about.ended_by}`].filter(Boolean).join(", "),
      ),
      tile("task", about.task, about.family),
    ),
    rightAnswer(about),
    about.error ? h("pre", { class: "error" }, about.error) : null,
    callTree(data.calls, query, about.sample),
    view.element,
    h(
      "details",
      { class: "gap" },
      h("summary", {}, "Final environment state"),
      h("pre", {}, about.outcome || "nothing"),
    ),
    h(
      "details",
      {},
      h("summary", {}, "Messages passed to the reward functions"),
      data.messages.length
        ? data.messages.map((each) => [h("h3", { class: "gap" }, each.role), h("pre", {}, each.text)])
        : h("pre", {}, "none"),
    ),
    h(
      "details",
      {},
      h("summary", {}, "Sampling parameters"),
      h(
        "pre",
        {},
        about.sampling_params ? JSON.stringify(about.sampling_params, null, 2) : "not in the trace",
      ),
    ),
  );
  context.keys(view.keys());
  requestAnimationFrame(() => view.focus());
}

// The answer that the task has for its graders, if it has one.
function rightAnswer(about) {
  if (about.right === null) return null;
  return h("p", { class: "wrap" }, h("b", {}, "right answer "), h("code", {}, about.right));
}

// The calls of the program that made the rollout, each below the call that it continues.
function callTree(calls, query, sample) {
  if (!calls.length) return null;
  return h(
    "details",
    { open: "" },
    h("summary", {}, `${plural(calls.length, "call")} of the program`),
    calls.map((call) => callLine(call, query, sample)),
  );
}

function callLine(call, query, sample) {
  const line = h(
    "div",
    {},
    h("b", {}, `call ${call.call} `),
    callSample(call, query, sample),
    call.words ? h("span", { class: "quiet" }, `: ${call.words}`) : null,
  );
  line.style.paddingLeft = `${20 * (call.depth + 1)}px`;
  return line;
}

function callSample(call, query, sample) {
  if (!call.sample_id) return h("span", { class: "quiet" }, "in no sample");
  return call.sample_id === sample ? "in this sample" : sampleLink(query, call.sample_id, { tint: query.tint });
}

function previousNext(query, data) {
  const to = (sample, key, label) => {
    const at = { run: query.run, stage: query.stage, step: query.step, sample };
    return sample && hasAnswer("sample", at)
      ? h("a", { href: address("sample", { ...at, tint: query.tint }), "data-key": key }, label)
      : null;
  };
  return h("span", { class: "row" }, to(data.before, ",", "← previous"), to(data.after, ".", "next →"));
}

export async function group(page, query, context) {
  const question = { run: query.run, stage: query.stage, step: query.step, group: query.group };
  const data = await get("group", question);
  const columns = h("div", { class: "columns" });
  const card = h("aside", { class: "card", "aria-live": "polite" });
  const views = data.samples.map((each) => {
    const mine = each.about.sample === query.sample;
    return new TokenView(each, { ...query, sample: each.about.sample, token: mine ? query.token : "" }, card);
  });
  setChildren(
    columns,
    ...data.samples.map((each, i) =>
      h(
        "section",
        {},
        h(
          "div",
          { class: "row" },
          h("b", {}, sampleLink(query, each.about.sample, { tint: query.tint })),
          h("span", { class: "grow" }),
          findingCodes(each.about.findings),
        ),
        h(
          "div",
          { class: "quiet" },
          `reward ${number(each.about.reward)} · advantage ${number(each.about.advantage, 3)} · ${each.about.sampled} sampled · ${each.about.finish}`,
        ),
        views[i].box,
      ),
    ),
  );
  setChildren(
    page,
    crumbs(query),
    h("h1", {}, `group ${data.group}`),
    h(
      "p",
      { class: "quiet" },
      [
        `${plural(data.rollouts, "rollout")} of ${data.samples[0].about.task}, best first`,
        data.count > data.rollouts ? `${data.count} samples` : "",
        data.count > data.samples.length ? `the first ${data.samples.length}` : "",
      ]
        .filter(Boolean)
        .join("; "),
    ),
    rightAnswer(data.samples[0].about),
    tintSelect(query, (tint) => {
      for (const view of views) view.setTint(tint);
    }),
    legend(),
    h("div", { class: "xray" }, columns, card),
  );
  const pointed = () => views.find((each) => each === TokenView.last) || views[0];
  context.keys({
    ArrowRight: () => pointed().step(1),
    ArrowLeft: () => pointed().step(-1),
    t: nextTint,
  });
  requestAnimationFrame(() => views.forEach((view) => view.focus()));
}

function crumbs(query) {
  return h(
    "p",
    { class: "crumbs" },
    link(address("run", { run: query.run }), query.run),
    " / ",
    link(
      address("step", { run: query.run, stage: query.stage, step: query.step }),
      `${query.stage} ${query.step}`,
    ),
  );
}
