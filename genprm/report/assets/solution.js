// One opened solution: its steps, critiques, code and all else that the result holds.
// All that comes from data enters as text nodes, never as markup.

const LONG = 5000; // characters of a text that are shown before "Show all"

/** An element; strings among its children become text, and empty children are left out. */
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const number = (value, digits = 3) => (typeof value === "number" ? value.toFixed(digits) : String(value ?? "–"));
const count = (value) => (typeof value === "number" ? value.toLocaleString("en") : String(value));
const errorName = (first) => (first === null ? "undecided" : first < 0 ? "no error" : `step ${first}`);
const badge = (kind, ...text) => el("span", { class: `badge ${kind}` }, ...text);
const reason = (name, text) => el("p", { class: "reason" }, `${name}: `, el("bdi", {}, text));

// What scrolls can be reached with the keyboard; what does not is no stop on the way.
const sizes = new ResizeObserver((changes) => {
  for (const { target } of changes) {
    const scrolls = target.scrollHeight > target.clientHeight + 1 || target.scrollWidth > target.clientWidth + 1;
    if (scrolls) target.setAttribute("tabindex", "0");
    else target.removeAttribute("tabindex");
  }
});

/** A text of any length, as [text, inserted by the host] pieces; the rest of a long one is shown by a button. */
function block(pieces, label, kind = "prose") {
  const total = pieces.reduce((sum, [text]) => sum + text.length, 0);
  if (!total) return el("p", { class: "quiet" }, `${label}: empty`);
  const direction = kind === "prose" ? "auto" : "ltr";
  const box = el("div", { class: `text ${kind}`, dir: direction, role: "group", "aria-label": label });
  sizes.observe(box);
  fill(box, pieces, LONG);
  if (total <= LONG) return box;
  const name = `Show all ${count(total)} characters`;
  const more = el("button", { type: "button", class: "plain", "aria-expanded": "false" }, name);
  more.addEventListener("click", () => {
    const all = more.getAttribute("aria-expanded") === "false";
    more.setAttribute("aria-expanded", all);
    more.textContent = all ? "Show less" : name;
    fill(box, pieces, all ? total : LONG);
  });
  return el("div", { class: "long" }, box, el("p", {}, `${count(total)} characters. `, more));
}

function fill(box, pieces, limit) {
  box.replaceChildren();
  for (const [text, host] of pieces) {
    if (limit <= 0) break;
    const cut = /[\ud800-\udbff]/.test(text[limit - 1] ?? "") ? limit - 1 : limit; // never half a character
    const title = "inserted by genprm, not written by the model";
    box.append(el("span", host ? { class: "host", title } : {}, text.slice(0, cut)));
    limit -= text.length;
  }
}

/** Names and values; nested ones become lists of their own. */
function pairs(object, kind = "facts") {
  const rows = Object.entries(object).map(([name, value]) =>
    el("div", {}, el("dt", {}, name.replaceAll("_", " ")), el("dd", {}, tree(value, name))));
  return el("dl", { class: kind }, rows);
}

function tree(value, name = "text") {
  if (Array.isArray(value)) {
    return value.length ? el("ol", { class: "tree" }, value.map((item) => el("li", {}, tree(item)))) : "none";
  }
  if (value !== null && typeof value === "object") return pairs(value, "tree");
  if (typeof value === "number") return Number.isInteger(value) ? count(value) : number(value);
  const text = String(value ?? "–");
  if (name === "source") return block([[text, false]], name, "code");
  return text.length > 200 ? block([[text, false]], name) : el("bdi", {}, text);
}

/** The children of an opened row. */
function solution(result, link) {
  const steps = el("ol", { class: "steps" }, result.steps.map((item) => step(item, result)));
  const toggle = el("button", { type: "button", class: "plain" }, "Open all critiques");
  toggle.addEventListener("click", () => {
    const votes = [...steps.querySelectorAll("details")];
    const open = votes.some((vote) => !vote.open);
    votes.forEach((vote) => { vote.open = open; });
    toggle.textContent = open ? "Close all critiques" : "Open all critiques";
  });
  const judged = { true: "right", false: "wrong" }[result.outcome?.correct] ?? "undecided";
  const facts = {
    "first error found": errorName(result.first_error),
    "gold first error": result.label === null ? null : errorName(result.label),
    reward: `${number(result.reward)} (${result.aggregation})`,
    "final answer": result.outcome && `${result.outcome.answer ?? "–"}: ${judged}`,
    "prefix score": result.prefix_score,
    "stopped early": result.stopped_early ? "yes: later steps were not judged" : null,
    ...result.extra,
    ...result.usage,
    model: result.model,
    protocol: `${result.protocol.name} ${result.protocol.sha256}`,
    config: result.config_sha256,
    sandbox: result.sandbox,
  };
  const known = Object.fromEntries(Object.entries(facts).filter(([, value]) => value !== null && value !== undefined));
  const more = (name, list) => el("details", { class: "vote" }, el("summary", {}, name), list);
  return [
    el("h4", {}, "Problem"),
    block([[result.problem, false]], "problem"),
    el("div", { class: "between" }, el("h4", {}, "Steps"), toggle),
    steps,
    ...(result.evidence ? [more("Evidence", pairs(result.evidence, "tree"))] : []),
    more("Details", pairs(known)),
    el("p", {}, el("a", { href: link }, "Link to this solution")),
  ];
}

function step(item, result) {
  const [found, gold] = [item.index === result.first_error, item.index === result.label];
  const kind = { correct: "good", incorrect: "bad", unscored: "unsure" }[item.verdict];
  const heading = [
    badge(kind, item.verdict),
    item.reward !== null && badge("", `reward ${number(item.reward)}`),
    found && badge("bad", "▲ first error found"),
    gold && badge("", "◆ gold first error"),
  ];
  const features = item.features && Object.keys(item.features).length > 0;
  return el("li", { class: `step${found || gold ? " marked" : ""}` },
    el("h5", {}, `Step ${item.index} `, heading.filter(Boolean).flatMap((part) => [part, " "])),
    block([[item.text, false]], `step ${item.index}`),
    item.unscored_reason && reason("Unscored", item.unscored_reason),
    features && pairs(item.features, "facts features"),
    item.votes.map((vote, place) => ballot(vote, `Vote ${place + 1}: P(Yes) ${number(vote.p_yes)}`, (found || gold) && !place)),
    item.failed_votes.map((vote) => ballot(vote, "Critique without a label", false)));
}

/** A critique with its code; one that gave no label has a reason in place of a probability. */
function ballot(vote, name, open) {
  const quiet = [
    typeof vote.mass === "number" && `label mass ${number(vote.mass)}${vote.low_mass ? ", low" : ""}`,
    vote.direct && "direct judgement",
    vote.shared && "one critique for all steps",
    `${count(vote.completion_tokens)} tokens`,
    vote.seed !== null && `seed ${vote.seed}`,
  ].filter(Boolean).join(" · ");
  return el("details", { class: "vote", ...(open ? { open: "" } : {}) },
    el("summary", {}, name, " ", el("span", { class: "quiet" }, quiet)),
    vote.reason && reason("No label", vote.reason),
    vote.notes.length > 0 && el("ul", { class: "notes" }, vote.notes.map((note) => el("li", {}, el("bdi", {}, note)))),
    block(vote.critique, "critique"),
    vote.checks.map(check));
}

function check(run, place) {
  const head = [badge(run.status === "ok" ? "good" : "bad", run.status), ` ${number(run.seconds, 2)} s`];
  return el("div", { class: "check" },
    el("p", { class: "check-head quiet" }, `Code ${place + 1} `, head),
    block([[run.source, false]], `code ${place + 1}`, "code"),
    block([[run.output, false]], `output of code ${place + 1}`, "code output"));
}
