// The list of solutions: filters, pages, links, and the theme. solution.js shows one that is opened.

const PER_PAGE = 50; // solutions of a page of the list
const KEPT_CHUNKS = 8; // unpacked chunks that stay in memory

const byId = (id) => document.getElementById(id);
const entries = JSON.parse(byId("index").textContent);
const chunks = new Map();
const opened = new Set();
const parsed = new Promise((resolve) =>
  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", resolve) : resolve());
let shown = []; // positions of the entries that the filters keep, sorted
let page = 0;

// ------------------------------------------------------------------ filters and order

const truth = (entry) => entry.label ?? entry.first;
const FILTERS = {
  all: () => true,
  wrong: (entry) => entry.match === false,
  error: (entry) => truth(entry) !== null && truth(entry) >= 0,
  correct: (entry) => truth(entry) === -1,
  unscored: (entry) => entry.first === null || entry.steps.includes(null),
};
const UNLABELLED = { error: "Error found", correct: "No error found" };

const collator = new Intl.Collator("en", { numeric: true });
const byReward = (sign) => (a, b) => {
  const [x, y] = [entries[a].reward, entries[b].reward];
  return x === null || y === null ? (x === null) - (y === null) : sign * (x - y);
};
const SORTS = {
  id: (a, b) => collator.compare(entries[a].id, entries[b].id),
  low: byReward(1),
  high: byReward(-1),
  order: (a, b) => a - b,
};

const haystack = (entry) => (entry.text ??= `${entry.id}\n${entry.problem}`.toLowerCase());

function choose() {
  const keep = FILTERS[document.querySelector("input[name=filter]:checked").value];
  const needle = byId("search").value.trim().toLowerCase();
  const group = byId("group").value;
  shown = [...entries.keys()].filter((position) => {
    const entry = entries[position];
    return keep(entry) && (!group || entry.group === group) && (!needle || haystack(entry).includes(needle));
  });
  shown.sort(SORTS[byId("sort").value]);
  page = 0;
  render();
}

// ------------------------------------------------------------------ rows

const VERDICTS = { c: "correct", i: "incorrect", u: "unscored" };

/** The rewards of a solution's steps: a colour, a number, and marks for the first errors. */
function strip(entry) {
  const cells = entry.steps.map((reward, index) => {
    const [found, gold] = [index === entry.first, index === entry.label];
    const said = [
      reward !== null && `reward ${reward.toFixed(2)}`, VERDICTS[entry.verdicts[index]],
      found && "first error found", gold && "gold first error",
    ].filter(Boolean).join(", ");
    const digits = reward === null ? "–" : reward >= 0.995 ? "1.0" : reward.toFixed(2).slice(1);
    const value = el("span", { class: "value", "aria-hidden": "true" }, digits);
    if (reward !== null) value.style.setProperty("--far", Math.round(Math.abs(reward - 0.5) * 200));
    const marks = el("span", { class: "marks", "aria-hidden": "true" }, `${found ? "▲" : ""}${gold ? "◆" : ""}`);
    const shade = reward === null ? "unscored" : reward < 0.5 ? "low" : "high";
    const looks = `cell ${shade}${found ? " predicted" : ""}`;
    return el("li", {}, el("span", { class: looks, role: "img", "aria-label": `step ${index}: ${said}` }, value, marks));
  });
  if (entry.label !== null && entry.label >= entry.steps.length) {
    cells.push(el("li", { class: "quiet" }, `◆ gold first error: step ${entry.label}, not judged`));
  }
  return el("ol", { class: "strip", "aria-label": "Step rewards" }, cells);
}

function row(position) {
  const entry = entries[position];
  const button = el("button",
    { type: "button", id: `b${position}`, "aria-expanded": "false", "aria-controls": `s${position}` },
    el("span", { class: "id", dir: "auto" }, entry.id), " ",
    el("span", { class: "problem", dir: "auto" }, entry.problem));
  button.addEventListener("click", () => setOpen(position, button.getAttribute("aria-expanded") === "false", true));
  const verdict = entry.first === null ? badge("unsure", "undecided")
    : entry.first < 0 ? badge("good", "no error found") : badge("bad", `first error: step ${entry.first}`);
  return el("li", { class: "row" },
    el("h3", {}, button),
    el("p", { class: "badges" }, verdict,
      entry.label !== null && badge("", `gold: ${errorName(entry.label)}`),
      entry.match !== null && (entry.match ? badge("good", "✓ agrees") : badge("bad", "✗ differs")),
      badge("", `reward ${number(entry.reward)}`),
      entry.group && badge("", el("bdi", {}, entry.group))),
    strip(entry),
    el("div", { id: `s${position}`, class: "body", hidden: "" }));
}

function render() {
  const last = Math.max(0, Math.ceil(shown.length / PER_PAGE) - 1);
  page = Math.min(Math.max(page, 0), last);
  const from = page * PER_PAGE;
  const visible = shown.slice(from, from + PER_PAGE);
  byId("rows").replaceChildren(...visible.map(row));
  visible.filter((position) => opened.has(position)).forEach((position) => setOpen(position, true));
  const range = `${count(from + 1)}–${count(from + visible.length)} of ${count(shown.length)}`;
  byId("status").textContent = shown.length ? range : "No solutions";
  byId("previous").setAttribute("aria-disabled", page === 0);
  byId("next").setAttribute("aria-disabled", page === last);
}

function turn(by) {
  const before = page;
  page += by;
  render();
  if (page !== before) byId("rows").scrollIntoView();
}

// ------------------------------------------------------------------ opening

async function unpack(chunk) {
  await parsed; // the chunks stand below this script
  const bytes = Uint8Array.from(atob(byId(`chunk-${chunk}`).textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

async function load([chunk, place]) {
  if (!chunks.has(chunk)) chunks.set(chunk, unpack(chunk));
  if (chunks.size > KEPT_CHUNKS) chunks.delete(chunks.keys().next().value);
  return (await chunks.get(chunk))[place];
}

async function setOpen(position, open, byHand = false) {
  const [button, body, entry] = [byId(`b${position}`), byId(`s${position}`), entries[position]];
  button.setAttribute("aria-expanded", open);
  body.hidden = !open;
  opened[open ? "add" : "delete"](position);
  if (byHand) address(open ? link(entry) : location.pathname + location.search);
  if (!open || body.hasChildNodes()) return;
  body.append(el("p", { class: "quiet" }, "Opening…"));
  try {
    body.replaceChildren(...solution(await load(entry.at), link(entry)));
  } catch (error) {
    const hint = "Its data is packed with gzip, which browsers open since 2023.";
    const said = `This solution could not be opened: ${error.message}. ${hint}`;
    body.replaceChildren(el("p", { class: "reason", role: "alert" }, said));
  }
}

// ------------------------------------------------------------------ links

const wellFormed = (text) => text.replace(/\p{Surrogate}/gu, "\ufffd"); // half a pair cannot stand in a link
const link = (entry) => `#id=${encodeURIComponent(wellFormed(entry.id))}`;

function address(place) {
  try { history.replaceState(null, "", place); } catch { /* some browsers forbid it for files */ }
}

function linkedId() {
  const text = location.hash.slice("#id=".length);
  try { return decodeURIComponent(text); } catch { return text; }
}

function follow() {
  if (!location.hash.startsWith("#id=")) return;
  const id = linkedId();
  const position = entries.findIndex((entry) => wellFormed(entry.id) === id);
  if (position < 0) {
    byId("status").textContent = "The link's solution is not in this report";
    return;
  }
  if (!shown.includes(position)) {
    byId("filters").reset();
    choose();
  }
  page = Math.floor(shown.indexOf(position) / PER_PAGE);
  opened.add(position);
  render();
  byId(`b${position}`).focus({ preventScroll: true });
  byId(`b${position}`).scrollIntoView();
}

// ------------------------------------------------------------------ theme and start

function theme() {
  const root = document.documentElement;
  const [button, system] = [byId("theme"), matchMedia("(prefers-color-scheme: dark)")];
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const show = () => button.setAttribute("aria-pressed", dark());
  try { root.dataset.theme = localStorage.genprmTheme ?? ""; } catch { /* no storage for files */ }
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.genprmTheme = root.dataset.theme; } catch { /* no storage for files */ }
    show();
  });
  system.addEventListener("change", show);
  button.hidden = false;
  show();
}

function start() {
  theme();
  const labelled = entries.some((entry) => entry.label !== null);
  if (!labelled) document.querySelectorAll("[data-gold]").forEach((node) => node.remove());
  for (const input of document.querySelectorAll("input[name=filter]")) {
    const caption = input.nextElementSibling;
    const name = (!labelled && UNLABELLED[input.value]) || caption.textContent;
    caption.textContent = `${name} ${count(entries.filter(FILTERS[input.value]).length)}`;
  }
  const groups = [...new Set(entries.map((entry) => entry.group))].filter(Boolean).sort(collator.compare);
  byId("group").append(...groups.map((group) => el("option", { value: group }, group)));
  byId("group-field").hidden = groups.length < 2;
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  // A search box also tells of a change when it loses the focus, which would take the rows from under a click.
  byId("search").addEventListener("input", choose);
  document.querySelectorAll("#filters input[type=radio], #filters select").forEach((control) =>
    control.addEventListener("change", choose));
  byId("previous").addEventListener("click", () => turn(-1));
  byId("next").addEventListener("click", () => turn(1));
  byId("filters").hidden = false;
  document.querySelectorAll(".table").forEach((table) => sizes.observe(table));
  choose();
  follow();
  addEventListener("hashchange", follow);
}

start();
