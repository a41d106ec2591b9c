// Judging a pasted solution: the form, the events as they come, and the theme. solution.js shows a step.

const byId = (id) => document.getElementById(id);
let underWay = null; // aborts the request

// ------------------------------------------------------------------ what is shown

const say = (text) => { byId("status").textContent = text; };

function complain(text) {
  byId("trouble").textContent = text;
  byId("trouble").hidden = !text;
}

/** The critique as [text, inserted by the host] pieces; offsets count characters, not UTF-16 units. */
function pieces(ballot) {
  const characters = Array.from(ballot.critique);
  const found = [];
  let done = 0;
  const put = (end, host) => {
    if (end > done) found.push([characters.slice(done, end).join(""), host]);
    done = Math.max(done, end);
  };
  for (const [start, end] of ballot.written ?? [[0, characters.length]]) {
    put(start, true);
    put(end, false);
  }
  put(characters.length, true);
  return found;
}

function judged(item, result) {
  const shape = (ballot) => ({ ...ballot, critique: pieces(ballot) });
  return step({ ...item, votes: item.votes.map(shape), failed_votes: item.failed_votes.map(shape) }, result);
}

/** Puts a step in its place, without taking the focus or the opened critiques from whoever reads there. */
function place(item, result) {
  const old = byId("steps").children[item.index];
  const fresh = judged(item, result);
  const open = old ? [...old.querySelectorAll("details")].map((vote) => vote.open) : [];
  [...fresh.querySelectorAll("details")].forEach((vote, at) => { vote.open = open[at] ?? vote.open; });
  if (old && old.contains(document.activeElement)) return;
  if (old) old.replaceWith(fresh);
  else byId("steps").append(fresh);
}

const waiting = (text, index) => el("li", { class: "step waiting" },
  el("h5", {}, `Step ${index} `, badge("", "not judged yet")), block([[text, false]], `step ${index}`));

// ------------------------------------------------------------------ events

const HANDLERS = {
  solution(data) {
    byId("steps").replaceChildren(...data.steps.map(waiting));
    byId("verdicts").hidden = false;
    underWay.total = data.steps.length;
    say(`Judging ${data.steps.length} steps …`);
  },
  step(data) {
    place(data, { first_error: null, label: null });
    say(`Step ${data.index}: ${data.verdict}. ${data.index + 1} of ${underWay.total} judged.`);
  },
  result(data) {
    if (data.first_error !== null && data.first_error >= 0) {
      place(data.steps[data.first_error], data);
    }
    [...byId("steps").children].slice(data.steps.length).forEach((item) => {
      item.querySelector(".badge").textContent = "not judged: it comes after the first error";
    });
    const first = data.first_error;
    const verdict = first === null ? badge("unsure", "undecided")
      : first < 0 ? badge("good", "no error found") : badge("bad", `▲ first error: step ${first}`);
    const answer = data.outcome && badge({ true: "good", false: "bad" }[data.outcome.correct] ?? "unsure",
      `final answer ${data.outcome.answer ?? "–"}: ${{ true: "right", false: "wrong" }[data.outcome.correct] ?? "undecided"}`);
    const reward = badge("", `reward ${number(data.reward)} (${data.aggregation})`);
    byId("whole").replaceChildren(...[verdict, reward, answer].filter(Boolean));
    const facts = {
      ...data.usage, model: data.model, protocol: `${data.protocol.name} ${data.protocol.sha256}`,
      config: data.config_sha256, sandbox: data.sandbox,
    };
    byId("details").replaceChildren(
      ...(data.evidence ? [el("details", { class: "vote" }, el("summary", {}, "Evidence"), pairs(data.evidence, "tree"))] : []),
      el("details", { class: "vote" }, el("summary", {}, "Details"), pairs(facts)));
    underWay.finished = true;
    say(first === null ? "Done: undecided." : first < 0 ? "Done: no error found." : `Done: the first error is step ${first}.`);
  },
  error(data) {
    underWay.finished = true;
    complain(`${data.error.type}: ${data.error.message}`);
    say("Ended.");
  },
};

/** Events of a stream: blocks that end in a blank line, each with an event's name and one line of data. */
async function follow(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const lines of blocks) {
      const name = /^event: (.*)$/m.exec(lines)?.[1];
      const data = /^data: (.*)$/m.exec(lines)?.[1];
      if (name in HANDLERS && data !== undefined) HANDLERS[name](JSON.parse(data));
    }
  }
}

// ------------------------------------------------------------------ the form

function given() {
  const body = { problem: byId("problem").value, solution: byId("solution").value };
  if (byId("answer").value.trim()) body.answer = byId("answer").value;
  for (const name of ["problem", "solution"]) {
    byId(name).setAttribute("aria-invalid", !body[name].trim());
  }
  const empty = ["problem", "solution"].find((name) => !body[name].trim());
  if (!empty) return body;
  complain(`The ${empty} is empty.`);
  byId(empty).focus();
  return null;
}

async function judge(event) {
  event.preventDefault();
  if (underWay) return;
  complain("");
  const body = given();
  if (!body) return;
  const mine = underWay = Object.assign(new AbortController(), { total: 0, finished: false });
  buttons();
  say("Waiting …");
  byId("steps").replaceChildren();
  byId("whole").replaceChildren();
  byId("details").replaceChildren();
  const headers = { "Content-Type": "application/json" };
  const token = byId("token")?.value;
  if (token) headers.Authorization = `Bearer ${token}`;
  try {
    const answer = await fetch("v1/stream", { method: "POST", headers, body: JSON.stringify(body), signal: mine.signal });
    if (!answer.ok) {
      HANDLERS.error(await answer.json());
      return;
    }
    await follow(answer.body);
    if (!mine.finished) throw new Error("the answer ended early");
  } catch (error) {
    if (mine.signal.aborted) {
      say("Stopped.");
    } else {
      complain(`No answer: ${error.message}`);
      say("Ended.");
    }
  } finally {
    underWay = null;
    buttons();
  }
}

function buttons() {
  byId("judge").setAttribute("aria-disabled", Boolean(underWay));
  byId("stop").setAttribute("aria-disabled", !underWay);
}

function theme() {
  const root = document.documentElement;
  const [button, system] = [byId("theme"), matchMedia("(prefers-color-scheme: dark)")];
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const show = () => button.setAttribute("aria-pressed", dark());
  try { root.dataset.theme = localStorage.genprmTheme ?? ""; } catch { /* no storage here */ }
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.genprmTheme = root.dataset.theme; } catch { /* no storage here */ }
    show();
  });
  system.addEventListener("change", show);
  button.hidden = false;
  show();
}

byId("given").addEventListener("submit", judge);
byId("stop").addEventListener("click", () => underWay?.abort());
for (const name of ["problem", "solution"]) {
  byId(name).addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("given").requestSubmit();
  });
}
theme();
