// Where answers come from: the server, or, in a report, the page itself.

const kept = document.getElementById("views");
const VIEWS = kept ? JSON.parse(kept.textContent) : null;
export const IS_REPORT = VIEWS !== null;

export function question(view, query) {
  const asked = new URLSearchParams();
  for (const name of Object.keys(query).sort()) {
    if (query[name] !== undefined && query[name] !== null && query[name] !== "") asked.set(name, query[name]);
  }
  const text = asked.toString();
  return text ? `${view}?${text}` : view;
}

// Whether a question has an answer here: a report holds what was asked when it was made.
export function holds(view, query) {
  return !IS_REPORT || question(view, query) in VIEWS;
}

export async function get(view, query = {}) {
  const asked = question(view, query);
  if (IS_REPORT) {
    if (asked in VIEWS) return VIEWS[asked];
    throw new Error(`This report does not hold that (${asked}): open the run with truing board.`);
  }
  const answer = await fetch(`/api/${asked}`);
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error || answer.statusText);
  return told;
}

// The state of a view is the part of its address behind the #, so that a link makes the same view again.
export function address(page, query = {}) {
  return `#/${question(page, query)}`;
}

export function here() {
  const [path, text] = location.hash.replace(/^#\/?/, "").split("?");
  return { page: path || "runs", query: Object.fromEntries(new URLSearchParams(text || "")) };
}

export function go(page, query) {
  location.hash = address(page, query);
}

// Changes the address without a new page: what was asked of the view is kept for a reload, or a friend.
export function remember(query) {
  const { page, query: now } = here();
  history.replaceState(history.state, "", address(page, { ...now, ...query }));
}

export function follow(changed, heard) {
  if (IS_REPORT) return;
  const source = new EventSource("/api/live");
  source.addEventListener("hello", () => heard(true));
  source.addEventListener("changed", (event) => changed(JSON.parse(event.data)));
  source.onerror = () => heard(false);
}
