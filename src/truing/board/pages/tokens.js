// The token view: tokens in the colours of their origin, a tint, and a card for the selected token.
import { ORIGINS, tokenCard } from "./token_card.js";
import { h, setChildren } from "./dom.js";
import { concatWindows, tokenBlocks } from "./token_blocks.js";
import { get, IS_REPORT, updateAddress } from "./api.js";

const TINTS = {
  none: "no tint",
  sampler: "log-probability (darker: less likely)",
  advantage: "advantage",
  log_ratio: "log-ratio",
  entropy: "entropy",
  kl: "KL to the reference",
  token_gradient: "token gradient",
};
const SIGNED = new Set(["advantage", "log_ratio", "token_gradient"]);
const mouse = {};
const moved = (event) => event.clientX !== mouse.x || event.clientY !== mouse.y;
document.addEventListener("mousemove", (event) =>
  Object.assign(mouse, { x: event.clientX, y: event.clientY }),
);

// The last tint stays for the next sample.
let lastTint = "none";

function tintOf(query) {
  if (query.tint) lastTint = query.tint;
  else if (lastTint !== "none") updateAddress({ tint: lastTint });
  return lastTint;
}

export function tintSelect(query, change) {
  const select = h(
    "select",
    {
      id: "tint",
      "aria-label": "tint",
      onchange: (event) => {
        lastTint = event.target.value;
        updateAddress({ tint: lastTint });
        change(event.target.value);
      },
    },
    Object.entries(TINTS).map(([name, text]) =>
      h("option", { value: name, selected: tintOf(query) === name }, text),
    ),
  );
  return h("p", { class: "row" }, h("label", {}, "tint", select));
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

// Tokens of a sample in blocks: the prompt, then each turn.
export class TokenView {
  // card: the card that several views share when they stand side by side.
  constructor(data, query, card = null) {
    Object.assign(this, { data, query, small: card !== null, tint: tintOf(query) });
    this.tokens = data.tokens;
    this.at = query.token
      ? Math.min(Math.max(Number(query.token) || 0, this.tokens.start), this.tokens.end - 1)
      : null;
    this.card = card || h("aside", { class: "card", "aria-live": "polite" });
    this.box = h("div", {});
    if (!card) {
      this.element = h(
        "div",
        {},
        tintSelect(query, (tint) => this.setTint(tint)),
        legend(),
        h("div", { class: "xray" }, this.box, this.card),
      );
    }
    this.show();
  }

  setTint(tint) {
    this.tint = tint;
    this.show();
  }

  show() {
    this.findingsByToken = new Map();
    for (const each of this.data.findings) {
      for (const [start, end] of each.spans) {
        const stop = Math.min(end, this.tokens.end + 1); // one beyond the window shows whether it continues
        for (let t = Math.max(start, this.tokens.start - 1); t < stop; t++) {
          this.findingsByToken.set(t, [...this.findingsAt(t), each]);
        }
      }
    }
    setChildren(this.box, this.text());
    this.showCard(this.at);
  }

  text() {
    const { start, end, length } = this.tokens;
    const whole = h("div", {});
    for (const block of tokenBlocks(this.data.about.turns, start, end)) {
      const shown = h("div", { class: "tokens" });
      for (let t = block.start; t < block.end; t++) shown.append(this.token(t));
      // Rollouts of one task share their prompt: side by side it is folded.
      const same = this.small && !block.turn && block.start === 0;
      whole.append(
        same
          ? h("details", { class: "turn" }, h("summary", {}, block.label), shown)
          : h(
              "div",
              { class: block.turn ? "turn own" : "turn" },
              h("div", { class: "who" }, block.label),
              shown,
            ),
      );
    }
    // A mouse at rest selects nothing when a token is drawn under it.
    whole.addEventListener(
      "mousemove",
      (event) => event.target.dataset.t && moved(event) && this.showCard(Number(event.target.dataset.t)),
    );
    whole.addEventListener("mouseleave", () => this.showCard(this.at));
    whole.addEventListener(
      "click",
      (event) => event.target.dataset.t && this.select(Number(event.target.dataset.t)),
    );
    if (start > 0) whole.prepend(this.moreButton(start, start - 1));
    if (end < length) whole.append(this.moreButton(length - end, end));
    return whole;
  }

  // A button for tokens outside the window, before or after it.
  moreButton(many, token) {
    if (this.small || IS_REPORT) return h("p", { class: "quiet" }, `${many} more tokens in the run`);
    return h(
      "button",
      {
        onclick: async () => {
          const { run, stage, step, sample } = this.query;
          const next = (await get("sample", { run, stage, step, sample, token })).tokens;
          this.tokens =
            token < this.tokens.start ? concatWindows(next, this.tokens) : concatWindows(this.tokens, next);
          this.scales = {};
          this.show();
        },
      },
      `show ${many} ${token < this.tokens.start ? "earlier" : "later"} tokens`,
    );
  }

  token(t) {
    const i = t - this.tokens.start;
    const classes = ["t", this.tokens.origin[i]];
    if (this.tokens.trained[i]) classes.push("trained");
    if (this.tokens.clipped[i]) classes.push("clipped");
    if (t === this.at) classes.push("at");
    const [finding] = this.findingsAt(t);
    if (finding) {
      classes.push("found", finding.verdict);
      if (!this.findingsAt(t - 1).length) classes.push("first");
      if (!this.findingsAt(t + 1).length) classes.push("last");
    }
    const text = this.tokens.texts[i];
    const element = h("span", { class: classes.join(" "), "data-t": t }, text.replaceAll("\n", "⏎\n"));
    const paint = this.paint(i);
    if (paint) element.style.background = paint;
    return element;
  }

  // Findings that mark a token.
  findingsAt(t) {
    return this.findingsByToken.get(t) || [];
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

  select(t) {
    const lastToken = this.tokens.start + this.tokens.ids.length - 1;
    const before = this.box.querySelector(".at");
    if (before) before.classList.remove("at");
    this.at = Math.min(Math.max(t, this.tokens.start), lastToken);
    const now = this.box.querySelector(`[data-t="${this.at}"]`);
    if (now) now.classList.add("at");
    updateAddress({ token: this.at, sample: this.query.sample });
    this.showCard(this.at);
    return now;
  }

  focus() {
    if (this.at !== null) this.select(this.at)?.scrollIntoView({ block: "center" });
  }

  showCard(t) {
    if (t === null) {
      if (TokenView.last?.card === this.card && TokenView.last !== this) return; // it shows a token of another view
      setChildren(this.card, h("p", { class: "quiet" }, "Hover over a token, or use ← and →."));
      return;
    }
    TokenView.last = this;
    setChildren(
      this.card,
      ...tokenCard(this.tokens, t, this.findingsAt(t), this.card.querySelector("details")?.open),
    );
  }

  keys() {
    return { ArrowRight: () => this.step(1), ArrowLeft: () => this.step(-1), t: nextTint };
  }

  step(by) {
    const now = this.select(
      this.at === null ? firstOwn(this.data.about.turns, this.tokens.start) : this.at + by,
    );
    now?.scrollIntoView({ block: "nearest" });
  }
}

function firstOwn(turns, start) {
  return turns.length ? turns[0].start : start;
}
