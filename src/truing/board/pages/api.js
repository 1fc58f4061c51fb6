// Answers to questions about runs: from the server or, in a report, from the page itself.

const embedded = document.getElementById("views");
const VIEWS = embedded ? JSON.parse(embedded.textContent) : null;
export const IS_REPORT = VIEWS !== null;

export function question(view, query) {
  const params = new URLSearchParams();
  for (const name of Object.keys(query).sort()) {
    if (query[name] !== undefined && query[name] !== null && query[name] !== "")
      params.set(name, query[name]);
  }
  const text = params.toString();
  return text ? `${view}?${text}` : view;
}

// Whether a question has an answer here: a report holds only the answers that it was made with.
export function hasAnswer(view, query) {
  return !IS_REPORT || question(view, query) in VIEWS;
}

export async function get(view, query = {}) {
  const key = question(view, query);
  if (IS_REPORT) {
    if (key in VIEWS) return VIEWS[key];
    throw new Error(`Not in this report (${key}): open the run with truing board.`);
  }
  const answer = await fetch(`/api/${key}`);
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.error || answer.statusText);
  return data;
}

// The address after # is the whole state of a view, so that a link reproduces it.
export function address(page, query = {}) {
  return `#/${question(page, query)}`;
}

export function currentAddress() {
  const [path, text] = location.hash.replace(/^#\/?/, "").split("?");
  return { page: path || "runs", query: Object.fromEntries(new URLSearchParams(text || "")) };
}

export function navigate(page, query) {
  location.hash = address(page, query);
}

// Updates the address without loading a page, so that a reload or a shared link shows the same view.
export function updateAddress(query) {
  const { page, query: now } = currentAddress();
  history.replaceState(history.state, "", address(page, { ...now, ...query }));
}

// Subscribes to changes of runs and to the state of the connection.
export function subscribe(onChange, onConnection) {
  if (IS_REPORT) return;
  const source = new EventSource("/api/live");
  source.addEventListener("hello", () => onConnection(true));
  source.addEventListener("changed", (event) => onChange(JSON.parse(event.data)));
  source.onerror = () => onConnection(false);
}
