// Proxies by namespace, and problems by object.
const MOST = 200; // rows of a table that are drawn at once

function cell(text, kind = "", name = "td") {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

export function table(head, rows) {
  const made = document.createElement("table");
  const top = made.createTHead().insertRow();
  head.forEach(([name, kind]) => { const th = cell(name, kind || "", "th"); th.scope = "col"; top.append(th); });
  made.createTBody();
  fill(made, rows);
  return made;
}

// Brings the rows of a table to what they are to say, and touches only what differs: whatever is touched is laid out again.
function fill(made, rows) {
  const body = made.tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, index) => {
    const row = body.rows[index];
    if (!row) { body.insertRow().append(...cells.map(([text, kind]) => cell(text, kind))); return; }
    cells.forEach(([text, kind = ""], column) => {
      const old = row.cells[column];
      if (old.textContent !== text) old.textContent = text;
      if (old.className !== kind) old.className = kind;
    });
  });
}

// Orders names as people do: ns-2 before ns-10.
export const compare = new Intl.Collator(undefined, { numeric: true }).compare;

function note(text) {
  const made = document.createElement("p");
  made.textContent = text;
  return made;
}

function ago(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.floor(seconds))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
}

// Draws proxies grouped by namespace; the rows of a group are made when it is opened.
export function drawProxies(card, state) {
  const every = [...state.proxies.values()];
  const matching = state.query ? every.filter((row) => `${row.name}.${row.namespace} ${row.kind} ${row.version}`.toLowerCase().includes(state.query)) : every;
  if (!matching.length) { card.replaceChildren(note(state.query ? "No proxy matches." : "No proxy is connected.")); return; }
  const groups = new Map();
  for (const row of matching) { if (!groups.has(row.namespace)) groups.set(row.namespace, []); groups.get(row.namespace).push(row); }
  const kept = new Map([...card.querySelectorAll("details")].map((made) => [made.dataset.namespace, made]));
  const few = matching.length <= 12;
  const drawn = [...groups.keys()].sort(compare).map((namespace) => {
    const made = kept.get(namespace) || group(namespace, few);
    made.rows = groups.get(namespace);
    summarize(made);
    if (made.open) open(made);
    return made;
  });
  const same = drawn.length === card.children.length && drawn.every((made, index) => card.children[index] === made);
  if (!same) card.replaceChildren(...drawn);
}

function group(namespace, isOpen) {
  const made = document.createElement("details");
  made.dataset.namespace = namespace;
  made.append(document.createElement("summary"));
  made.open = isOpen;
  made.addEventListener("toggle", () => { if (made.open) open(made); });
  return made;
}

function summarize(made) {
  const summary = made.querySelector("summary"), total = made.rows.length;
  const waiting = made.rows.filter((row) => row.state === "waiting").length, refusing = made.rows.filter((row) => row.state === "error").length;
  if (made.said === `${total} ${waiting} ${refusing}`) return;
  made.said = `${total} ${waiting} ${refusing}`;
  const name = document.createElement("b"), bar = document.createElement("span"), count = document.createElement("span");
  name.textContent = made.dataset.namespace || "(no namespace)";
  bar.className = "bar";
  bar.setAttribute("aria-hidden", "true");
  for (const part of [waiting, refusing]) { const piece = document.createElement("i"); piece.style.width = `${(100 * part) / total}%`; bar.append(piece); }
  count.className = "count";
  count.textContent = `${total} ${total === 1 ? "proxy" : "proxies"}` + (waiting ? `, ${waiting} not up to date` : "") + (refusing ? `, ${refusing} refusing` : "");
  summary.replaceChildren(name, bar, count);
}

function open(made) {
  const order = { error: 0, waiting: 1, synced: 2 }, now = Date.now() / 1000;
  const rows = [...made.rows].sort((a, b) => order[a.state] - order[b.state] || compare(a.name, b.name));
  const cells = rows.slice(0, MOST).map((row) => [
    [row.name], [row.state === "waiting" ? `waits for ${ago(now - row.waits_since)}` : row.error || row.state, row.state],
    [row.kind, "optional"], [row.version, "optional"], [ago(now - row.since), "optional"],
  ]);
  const drawn = made.querySelector("table");
  if (drawn) fill(drawn, cells);
  else made.append(table([["proxy"], ["state"], ["type", "optional"], ["version", "optional"], ["since", "optional"]], cells));
  made.querySelector("p")?.remove();
  if (rows.length > MOST) made.append(note(`${rows.length - MOST} more: search for one.`));
}

function place(problem) {
  const made = document.createElement("div");
  made.className = "path";
  made.textContent = problem.file + (problem.line ? `:${problem.line}` : "");
  return made;
}

// Draws problems, errors first.
export function drawProblems(card, state) {
  const matching = state.problems.filter((p) => !state.query || JSON.stringify(Object.values(p)).toLowerCase().includes(state.query));
  if (!matching.length) { card.replaceChildren(note(state.query && state.problems.length ? "No problem matches." : "Nothing is wrong.")); return; }
  const order = { error: 0, warning: 1 };
  matching.sort((a, b) => order[a.severity] - order[b.severity]);
  const rows = matching.slice(0, MOST).map((p) => [
    [p.severity, p.severity], [[p.kind, [p.namespace, p.name].filter(Boolean).join("/")].filter(Boolean).join(" ") || "file"],
    [[p.path, p.message].filter(Boolean).join(": ")],
  ]);
  const drawn = table([["severity"], ["object"], ["what"]], rows);
  matching.slice(0, MOST).forEach((p, index) => { if (p.file) drawn.tBodies[0].rows[index].cells[2].append(place(p)); });
  card.replaceChildren(drawn);
  if (matching.length > MOST) card.append(note(`${matching.length - MOST} more: search, or see all of them as JSON.`));
}
