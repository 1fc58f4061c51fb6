// Routing between pages, live updates, and the keyboard.
import { escapeInvisible, h, link, setChildren } from "./dom.js";
import { address, currentAddress, IS_REPORT, subscribe } from "./api.js";
import { runs } from "./runs.js";
import { run } from "./run.js";
import { step } from "./step.js";
import { group, sample } from "./sample.js";
import { rule, rules } from "./rules.js";
import { compare } from "./compare.js";
import { hypothesis, lab } from "./lab.js";
import { tasks } from "./prompts.js";
import { samples } from "./samples.js";
import { answers } from "./answers.js";
import { isTyping, keepFocus } from "./focus.js";
import { glossary } from "./glossary.js";

const PAGES = {
  runs,
  run,
  step,
  sample,
  group,
  rules,
  rule,
  compare,
  lab,
  hypothesis,
  tasks,
  samples,
  answers,
  glossary,
};
const LIVE = {
  runs: () => true,
  run: (query, names) =>
    names.some((name) => name === query.run || name.startsWith(`${query.run}-experiment/`)), // or a fork of it
};
const main = document.getElementById("page");
const liveStatus = h("span", { class: "live", role: "status" }, "");
let shown = 0;
let charts = () => [];
let refresh = null;
let keys = {};
let drawn = { page: "", query: {} };

// Scroll positions by history entry, so that Back restores them.
const scrollPositions = new Map();
history.scrollRestoration = "manual";
window.addEventListener(
  "scroll",
  () => history.state && scrollPositions.set(history.state.place, window.scrollY),
);

async function show({ quiet = false } = {}) {
  const { page, query } = currentAddress();
  const mine = ++shown;
  const before = history.state ? scrollPositions.get(history.state.place) : 0;
  if (!history.state) history.replaceState({ place: Math.random() }, "");
  keys = {};
  charts = () => [];
  refresh = null;
  const target = h("div", {});
  const context = {
    charts: (boxes) => {
      charts = boxes;
    },
    keys: (own) => {
      keys = own;
    },
    refresh: (own) => {
      refresh = own;
    },
    reload: (after) => setTimeout(() => mine === shown && show({ quiet: true }), after),
  };
  const draw = PAGES[page];
  try {
    if (!draw) throw new Error(`There is no page ${page}.`);
    if (!quiet) main.dataset.page = "";
    await draw(target, query, context, main);
    if (mine !== shown) return;
    if (quiet && isTyping(main)) return context.reload(200); // keep what the user types
    document.title = escapeInvisible(
      [query.run || query.code || "", "truing board"].filter(Boolean).join(" · "),
    );
    replacePage(page, query, quiet, before || 0, () => setChildren(main, target));
    main.dataset.page = page;
  } catch (error) {
    if (mine === shown) setChildren(main, h("div", { class: "error", role: "alert" }, error.message));
  }
  header();
}

// Replaces the page. A list with changed filters keeps its scroll position and the keyboard focus; the next page of
// a list starts at its top. before: the scroll position of this history entry.
function replacePage(page, query, quiet, before, put) {
  const samePage = quiet || drawn.page === page;
  const back = samePage ? keepFocus(main) : () => false;
  const turned = samePage && (drawn.query.start || "") !== (query.start || "");
  const scroll = window.scrollY;
  put();
  drawn = { page, query };
  const held = back();
  const list = samePage ? main.querySelector("[data-list]") : null;
  if (list && turned) list.scrollIntoView();
  else window.scrollTo(0, quiet || list ? scroll : before);
  if (!quiet && !held) main.focus({ preventScroll: true });
}

function header() {
  const { page } = currentAddress();
  const names = IS_REPORT ? { run: "Run" } : { runs: "Runs", compare: "Compare", rules: "Rules" };
  names.glossary = "Glossary";
  setChildren(
    document.getElementById("top"),
    link(
      address(IS_REPORT ? "run" : "runs", IS_REPORT ? REPORT_QUERY : {}),
      h("span", { class: "brand" }, "truing board"),
    ),
    h(
      "nav",
      {},
      Object.entries(names).map(([name, text]) =>
        h(
          "a",
          {
            href: address(name, name === "run" ? REPORT_QUERY : {}),
            "aria-current": page === name ? "page" : null,
          },
          text,
        ),
      ),
    ),
    h("span", { class: "grow" }),
    IS_REPORT ? null : liveStatus,
    h("button", { onclick: toggleTheme, "aria-label": "toggle dark mode" }, "◐"),
    h("button", { onclick: help, "aria-label": "keys" }, "?"),
  );
}

const REPORT_QUERY = IS_REPORT ? JSON.parse(document.getElementById("reported").textContent) : {};

function toggleTheme() {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("truing-theme", root.dataset.theme);
  } catch {
    /* a report opened from a file may keep nothing */
  }
  for (const box of charts()) box.show();
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
  ["?", "show the keys"],
  ["g then r", "runs"],
  ["g then d", "rules of the doctor"],
  ["g then w", "glossary"],
  ["u", "up: sample → step → run"],
  [", and .", "previous, next: step, sample, page"],
  ["← and →", "previous, next token"],
  ["t", "next tint"],
  ["/", "find"],
  ["d", "toggle dark mode"],
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
    h("p", {}, h("a", { href: address("glossary"), onclick: () => box.close() }, "glossary")),
    h("button", { onclick: () => box.close() }, "close"),
  );
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

const PARENT_PAGE = {
  sample: "step",
  group: "step",
  step: "run",
  samples: "run",
  answers: "run",
  tasks: "run",
  run: "runs",
  rule: "rules",
  lab: "runs",
};
let pressed = "";

function goUp() {
  const { page, query } = currentAddress();
  if (!PARENT_PAGE[page]) return;
  const { run: name, stage, step: number } = query;
  location.hash = address(
    PARENT_PAGE[page],
    PARENT_PAGE[page] === "step"
      ? { run: name, stage, step: number }
      : PARENT_PAGE[page] === "run"
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
    u: goUp,
    d: toggleTheme,
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
subscribe(
  (data) => {
    const { page, query } = currentAddress();
    if (!LIVE[page] || !LIVE[page](query, data.runs)) return;
    if (refresh) refresh().catch(() => show({ quiet: true }));
    else show({ quiet: true });
  },
  (on) => {
    liveStatus.className = `live ${on ? "on" : "off"}`;
    liveStatus.textContent = on ? "live" : "connection lost";
  },
);
if (IS_REPORT && !location.hash) location.replace(address("run", REPORT_QUERY));
show();
