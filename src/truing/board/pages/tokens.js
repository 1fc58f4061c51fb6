// The x-ray: tokens with their colours, their tint, and the card of the one that is pointed at.
import { about, ORIGINS } from "./card.js";
import { fill, h } from "./dom.js";
import { blocks, joined } from "./blocks.js";
import { get, IS_REPORT, remember } from "./data.js";

const TINTS = {
  none: "no tint",
  sampler: "log-probability: the darker, the less likely",
  advantage: "advantage",
  log_ratio: "log-ratio",
  entropy: "entropy",
  kl: "KL to the reference",
  pull: "pull",
};
const SIGNED = new Set(["advantage", "log_ratio", "pull"]);
const mouse = {};
const moved = (event) => event.clientX !== mouse.x || event.clientY !== mouse.y;
document.addEventListener("mousemove", (event) =>
  Object.assign(mouse, { x: event.clientX, y: event.clientY }),
);

// The tint that was chosen last holds for what is looked at next.
let last = "none";

function tintOf(query) {
  if (query.tint) last = query.tint;
  else if (last !== "none") remember({ tint: last });
  return last;
}

export function tints(query, change) {
  const select = h(
    "select",
    {
      id: "tint",
      "aria-label": "tint",
      onchange: (event) => {
        last = event.target.value;
        remember({ tint: last });
        change(event.target.value);
      },
    },
    Object.entries(TINTS).map(([name, text]) =>
      h("option", { value: name, selected: tintOf(query) === name }, text),
    ),
  );
  return h("p", { class: "row" }, h("label", {}, "tint by", select));
}

export function nextTint() {
  const select = document.getElementById("tint");
  select.selectedIndex = (select.selectedIndex + 1) % select.length;
  select.dispatchEvent(new Event("change"));
}

export function legend() {
  return h(
    "p",
    { class: "row" },
    Object.entries(ORIGINS).map(([name, text]) => h("span", { class: name, title: text }, name)),
    h("span", { class: "t trained" }, "trained"),
    h("span", { class: "t trained clipped" }, "trained, clipped"),
  );
}

// Tokens of a sample, in blocks: what the policy was shown, and each of its turns.
export class View {
  // card: where a token is told, if several views have one together; they stand side by side then.
  constructor(told, query, card = null) {
    Object.assign(this, { told, query, small: card !== null, tint: tintOf(query) });
    this.tokens = told.tokens;
    this.at = query.token
      ? Math.min(Math.max(Number(query.token) || 0, this.tokens.start), this.tokens.end - 1)
      : null;
    this.card = card || h("aside", { class: "card", "aria-live": "polite" });
    this.box = h("div", {});
    if (!card) {
      this.element = h(
        "div",
        {},
        tints(query, (tint) => this.paintAs(tint)),
        legend(),
        h("div", { class: "xray" }, this.box, this.card),
      );
    }
    this.show();
  }

  paintAs(tint) {
    this.tint = tint;
    this.show();
  }

  show() {
    this.meant = new Map();
    for (const each of this.told.findings) {
      for (const [start, end] of each.spans) {
        const last = Math.min(end, this.tokens.end + 1); // one beyond the window says whether it goes on
        for (let t = Math.max(start, this.tokens.start - 1); t < last; t++) {
          this.meant.set(t, [...this.found(t), each]);
        }
      }
    }
    fill(this.box, this.text());
    this.tell(this.at);
  }

  text() {
    const { start, end, length } = this.tokens;
    const whole = h("div", {});
    for (const block of blocks(this.told.about.turns, start, end)) {
      const shown = h("div", { class: "tokens" });
      for (let t = block.start; t < block.end; t++) shown.append(this.token(t));
      // Beside each other, attempts at one task need not show four times what all were asked.
      const same = this.small && !block.turn && block.start === 0;
      whole.append(
        same
          ? h("details", { class: "turn" }, h("summary", {}, block.says), shown)
          : h(
              "div",
              { class: block.turn ? "turn own" : "turn" },
              h("div", { class: "who" }, block.says),
              shown,
            ),
      );
    }
    // A mouse that rests where a token comes to lie points at nothing.
    whole.addEventListener(
      "mousemove",
      (event) => event.target.dataset.t && moved(event) && this.tell(Number(event.target.dataset.t)),
    );
    whole.addEventListener("mouseleave", () => this.tell(this.at));
    whole.addEventListener(
      "click",
      (event) => event.target.dataset.t && this.move(Number(event.target.dataset.t)),
    );
    if (start > 0) whole.prepend(this.more(start, start - 1));
    if (end < length) whole.append(this.more(length - end, end));
    return whole;
  }

  // Tokens that were not told yet, in front of those that were or behind them.
  more(many, token) {
    if (this.small || IS_REPORT) return h("p", { class: "quiet" }, `${many} tokens more in the run`);
    return h(
      "button",
      {
        onclick: async () => {
          const { run, stage, update, sample } = this.query;
          const next = (await get("sample", { run, stage, update, sample, token })).tokens;
          this.tokens = token < this.tokens.start ? joined(next, this.tokens) : joined(this.tokens, next);
          this.scales = {};
          this.show();
        },
      },
      `${many} tokens ${token < this.tokens.start ? "before" : "more"}`,
    );
  }

  token(t) {
    const i = t - this.tokens.start;
    const classes = ["t", this.tokens.origin[i]];
    if (this.tokens.trained[i]) classes.push("trained");
    if (this.tokens.clipped[i]) classes.push("clipped");
    if (t === this.at) classes.push("at");
    const [found] = this.found(t);
    if (found) {
      classes.push("found", found.verdict);
      if (!this.found(t - 1).length) classes.push("first");
      if (!this.found(t + 1).length) classes.push("last");
    }
    const text = this.tokens.texts[i];
    const element = h("span", { class: classes.join(" "), "data-t": t }, text.replaceAll("\n", "⏎\n"));
    const paint = this.paint(i);
    if (paint) element.style.background = paint;
    return element;
  }

  // Findings that mean a token.
  found(t) {
    return this.meant.get(t) || [];
  }

  paint(i) {
    const stream = this.tokens.numbers[this.tint];
    if (!stream || stream[i] === null) return "";
    this.scales = this.scales || {};
    if (!this.scales[this.tint]) {
      const known = stream
        .filter((each) => typeof each === "number")
        .map(Math.abs)
        .sort((a, b) => a - b);
      this.scales[this.tint] = known[Math.floor(0.98 * (known.length - 1))] || known[known.length - 1] || 1;
    }
    const share = Math.min(1, Math.abs(stream[i]) / this.scales[this.tint]);
    const hue =
      SIGNED.has(this.tint) && stream[i] < 0
        ? "226, 84, 75"
        : SIGNED.has(this.tint)
          ? "64, 160, 96"
          : "224, 146, 30";
    return share < 0.02 ? "" : `rgba(${hue}, ${(0.08 + 0.5 * share).toFixed(3)})`;
  }

  move(t) {
    const last = this.tokens.start + this.tokens.ids.length - 1;
    const before = this.box.querySelector(".at");
    if (before) before.classList.remove("at");
    this.at = Math.min(Math.max(t, this.tokens.start), last);
    const now = this.box.querySelector(`[data-t="${this.at}"]`);
    if (now) now.classList.add("at");
    remember({ token: this.at, sample: this.query.sample });
    this.tell(this.at);
    return now;
  }

  focus() {
    if (this.at !== null) this.move(this.at)?.scrollIntoView({ block: "center" });
  }

  tell(t) {
    if (t === null) {
      if (View.last?.card === this.card && View.last !== this) return; // it tells of another's
      fill(this.card, h("p", { class: "quiet" }, "Point at a token, or walk with ← and →."));
      return;
    }
    View.last = this;
    fill(this.card, ...about(this.tokens, t, this.found(t), this.card.querySelector("details")?.open));
  }

  keys() {
    return { ArrowRight: () => this.step(1), ArrowLeft: () => this.step(-1), t: nextTint };
  }

  step(by) {
    const now = this.move(
      this.at === null ? firstOwn(this.told.about.turns, this.tokens.start) : this.at + by,
    );
    now?.scrollIntoView({ block: "nearest" });
  }
}

function firstOwn(turns, start) {
  return turns.length ? turns[0].start : start;
}
