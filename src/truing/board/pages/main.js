// Which page is shown, what is live, and the keyboard.
import { fill, h, link, visible } from "./dom.js";
import { address, follow, here, IS_REPORT } from "./data.js";
import { runs } from "./runs.js";
import { run } from "./run.js";
import { update } from "./update.js";
import { group, sample } from "./sample.js";
import { rule, rules } from "./rules.js";
import { compare } from "./compare.js";
import { hypothesis, lab } from "./lab.js";
import { tasks } from "./prompts.js";
import { samples } from "./samples.js";
import { hold, writing } from "./hold.js";
import { audit } from "./audit.js";
import { glossary } from "./glossary.js";

const PAGES = {
  runs,
  run,
  update,
  sample,
  group,
  rules,
  rule,
  compare,
  lab,
  hypothesis,
  tasks,
  samples,
  audit,
  glossary,
};
const LIVE = { runs: () => true, run: (query, names) => names.includes(query.run) };
const main = document.getElementById("page");
const signal = h("span", { class: "live", role: "status" }, "");
let shown = 0;
let kept = () => [];
let renew = null;
let keys = {};
let drawn = { page: "", query: {} };

// How far each place of the history was scrolled: Back leads to where somebody was.
const scrolled = new Map();
history.scrollRestoration = "manual";
window.addEventListener("scroll", () => history.state && scrolled.set(history.state.place, window.scrollY));

async function show({ quiet = false } = {}) {
  const { page, query } = here();
  const mine = ++shown;
  const before = history.state ? scrolled.get(history.state.place) : 0;
  if (!history.state) history.replaceState({ place: Math.random() }, "");
  keys = {};
  kept = () => [];
  renew = null;
  const target = h("div", {});
  const context = {
    keep: (boxes) => {
      kept = boxes;
    },
    keys: (own) => {
      keys = own;
    },
    renew: (own) => {
      renew = own;
    },
    again: (after) => setTimeout(() => mine === shown && show({ quiet: true }), after),
  };
  const draw = PAGES[page];
  try {
    if (!draw) throw new Error(`There is no page ${page}.`);
    if (!quiet) main.dataset.page = "";
    await draw(target, query, context, main);
    if (mine !== shown) return;
    if (quiet && writing(main)) return context.again(200); // nobody's words are taken away
    document.title = visible([query.run || query.code || "", "truing board"].filter(Boolean).join(" · "));
    stay(page, query, quiet, before || 0, () => fill(main, target));
    main.dataset.page = page;
  } catch (error) {
    if (mine === shown) fill(main, h("div", { class: "error", role: "alert" }, error.message));
  }
  top();
}

// Puts a page in place of another. A list that is asked otherwise stays where it was, and so does the keyboard's
// focus; the next page of a list begins at its top. before: where the place was scrolled to, if it is come back to.
function stay(page, query, quiet, before, put) {
  const again = quiet || drawn.page === page;
  const back = again ? hold(main) : () => false;
  const turned = again && (drawn.query.start || "") !== (query.start || "");
  const scroll = window.scrollY;
  put();
  drawn = { page, query };
  const held = back();
  const list = again ? main.querySelector("[data-list]") : null;
  if (list && turned) list.scrollIntoView();
  else window.scrollTo(0, quiet || list ? scroll : before);
  if (!quiet && !held) main.focus({ preventScroll: true });
}

function top() {
  const { page } = here();
  const names = IS_REPORT ? { run: "Run" } : { runs: "Runs", compare: "Compare", rules: "Rules" };
  names.glossary = "Words";
  fill(
    document.getElementById("top"),
    link(
      address(IS_REPORT ? "run" : "runs", IS_REPORT ? REPORTED : {}),
      h("span", { class: "brand" }, "truing board"),
    ),
    h(
      "nav",
      {},
      Object.entries(names).map(([name, text]) =>
        h(
          "a",
          {
            href: address(name, name === "run" ? REPORTED : {}),
            "aria-current": page === name ? "page" : null,
          },
          text,
        ),
      ),
    ),
    h("span", { class: "grow" }),
    IS_REPORT ? null : signal,
    h("button", { onclick: turn, "aria-label": "dark or light" }, "◐"),
    h("button", { onclick: help, "aria-label": "keys" }, "?"),
  );
}

const REPORTED = IS_REPORT ? JSON.parse(document.getElementById("reported").textContent) : {};

function turn() {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("truing-theme", root.dataset.theme);
  } catch {
    /* a report opened from a file may keep nothing */
  }
  for (const box of kept()) box.show();
}

function theme() {
  let chosen = null;
  try {
    chosen = localStorage.getItem("truing-theme");
  } catch {
    /* as above */
  }
  document.documentElement.dataset.theme =
    chosen || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

const HELP = [
  ["?", "these keys"],
  ["g then r", "runs"],
  ["g then d", "rules of the doctor"],
  ["g then w", "what the words mean"],
  ["u", "one up: from a sample to its update, to its run"],
  [", and .", "the one before, the one after: update, sample, page"],
  ["← and →", "from token to token"],
  ["t", "next tint"],
  ["/", "find"],
  ["d", "dark or light"],
];

function help() {
  const box = h(
    "dialog",
    {},
    h("h2", {}, "Keys"),
    h(
      "table",
      {},
      HELP.map(([key, text]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, text))),
    ),
    h("p", {}, h("a", { href: address("glossary"), onclick: () => box.close() }, "what the words mean")),
    h("button", { onclick: () => box.close() }, "close"),
  );
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

const ABOVE = {
  sample: "update",
  group: "update",
  update: "run",
  samples: "run",
  tasks: "run",
  run: "runs",
  rule: "rules",
  lab: "runs",
  audit: "runs",
};
let pressed = "";

function up() {
  const { page, query } = here();
  if (!ABOVE[page]) return;
  const { run: name, stage, update: number } = query;
  location.hash = address(
    ABOVE[page],
    ABOVE[page] === "update"
      ? { run: name, stage, update: number }
      : ABOVE[page] === "run"
        ? { run: name }
        : {},
  );
}

document.addEventListener("keydown", (event) => {
  if (
    document.querySelector("dialog[open]") ||
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)
  )
    return;
  const chord = pressed === "g" ? `g${event.key}` : event.key;
  pressed = event.key;
  const known = {
    "?": help,
    gr: () => {
      location.hash = address("runs");
    },
    gd: () => {
      location.hash = address("rules");
    },
    gw: () => {
      location.hash = address("glossary");
    },
    u: up,
    d: turn,
    ...keys,
  };
  const marked = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (known[chord]) known[chord]();
  else if (marked) marked.tagName === "INPUT" ? marked.focus() : marked.click();
  else return;
  event.preventDefault();
});

theme();
window.addEventListener("hashchange", () => show());
follow(
  (told) => {
    const { page, query } = here();
    if (!LIVE[page] || !LIVE[page](query, told.runs)) return;
    if (renew) renew().catch(() => show({ quiet: true }));
    else show({ quiet: true });
  },
  (on) => {
    signal.className = `live ${on ? "on" : "off"}`;
    signal.textContent = on ? "live" : "the board does not answer";
  },
);
if (IS_REPORT && !location.hash) location.replace(address("run", REPORTED));
show();
