// What happened in the last minutes, second by second, and until when certificates are valid.
import { table } from "./lists.js";

const SECONDS = 180, CHANGES = 8, DAY = 86400;
const NS = "http://www.w3.org/2000/svg";

const bytes = (n) => (n < 1000 ? `${Math.round(n)} B` : n < 1e6 ? `${(n / 1e3).toFixed(1)} KB` : `${(n / 1e6).toFixed(1)} MB`);

// Keeps what one second told, and follows each change until every proxy that it reached has acknowledged it.
export function remember(state, told) {
  state.points.push(told);
  if (state.points.length > SECONDS) state.points.shift();
  if (told.revision !== undefined && told.responses) {
    state.changes.unshift({ time: told.time, proxies: 0, responses: 0, bytes: 0, done: 0 });
    state.changes.length = Math.min(state.changes.length, CHANGES);
  }
  const change = state.changes[0];
  if (change && !change.done) {
    change.proxies = Math.min(change.proxies + told.reached, state.proxies.size); // who takes longer is told of in several seconds
    change.responses += told.responses;
    change.bytes += told.bytes;
    if (!told.waiting) change.done = told.time;
  }
}

function figure(title) {
  const made = document.createElement("figure"), caption = document.createElement("figcaption"), name = document.createElement("span");
  name.textContent = title;
  caption.append(name, document.createElement("b"));
  const svg = document.createElementNS(NS, "svg");
  svg.setAttribute("viewBox", `0 0 ${SECONDS} 44`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.append(document.createElementNS(NS, "polyline"));
  made.append(caption, svg);
  return made;
}

// Brings a curve that is there already to what it is to show.
function curve(made, points, value, shown, ticks = false) {
  const values = points.map(value), most = Math.max(...values, 1e-9), now = values.length ? shown(values[values.length - 1]) : "";
  const svg = made.querySelector("svg"), title = made.querySelector("span").textContent, start = SECONDS - values.length;
  made.querySelector("b").textContent = now;
  svg.setAttribute("aria-label", `${title}: ${now} now, at most ${shown(values.length ? most : 0)} in the last ${SECONDS} seconds`);
  svg.firstChild.setAttribute("points", values.map((v, i) => `${start + i},${42 - (40 * v) / most}`).join(" "));
  const marks = ticks ? points.flatMap((point, i) => (point.revision !== undefined ? [tick(start + i)] : [])) : [];
  svg.replaceChildren(svg.firstChild, ...marks);
}

function tick(x) {
  const made = document.createElementNS(NS, "line");
  for (const [name, value] of Object.entries({ class: "tick", x1: x, x2: x, y1: 0, y2: 44 })) made.setAttribute(name, value);
  return made;
}

// Draws the curves: what is pushed, and what the process uses.
export function drawPlots(pushes, process, state) {
  const points = state.points, count = (n) => String(Math.round(n));
  if (!pushes.children.length) {
    pushes.append(figure("responses a second; lines: configuration changed"), figure("bytes a second"), figure("proxies that have not acknowledged"));
    process.append(figure("CPU"), figure("memory"), figure("longest stall of the event loop in the last hour"));
  }
  curve(pushes.children[0], points, (p) => p.responses, count, true);
  curve(pushes.children[1], points, (p) => p.bytes, bytes);
  curve(pushes.children[2], points, (p) => p.waiting, count);
  curve(process.children[0], points, (p) => 100 * p.cpu, (n) => `${n.toFixed(1)} %`);
  curve(process.children[1], points, (p) => p.memory, bytes);
  curve(process.children[2], points, (p) => (p.stall ? p.stall.seconds : 0), (n) => `${n.toFixed(2)} s`);
  const stall = points.length ? points[points.length - 1].stall : null;
  process.children[2].title = stall ? `${new Date(stall.time * 1000).toLocaleTimeString()}: ${stall.work} (${stall.subject})` : "";
}

// Draws the last changes: how many proxies each reached, with how much, and how soon they had taken it.
export function drawChanges(card, state) {
  const rows = state.changes.map((c) => [
    [new Date(c.time * 1000).toLocaleTimeString()], [String(c.proxies)], [String(c.responses)], [bytes(c.bytes)],
    c.done ? [`within ${Math.max(1, Math.round(c.done - c.time + 1))} s`, "synced"] : ["not yet", "waiting"],
  ]);
  if (!rows.length) { const none = document.createElement("p"); none.textContent = "Nothing has changed since this page was opened."; card.replaceChildren(none); return; }
  card.replaceChildren(table([["changed at"], ["proxies"], ["responses"], ["bytes"], ["acknowledged"]], rows));
}

// Draws a line for each certificate from when until when it is valid, the first to end on top.
export function drawCertificates(card, state) {
  const now = Date.now() / 1000, sorted = [...state.certificates].sort((a, b) => a.ends - b.ends);
  if (!sorted.length) { const none = document.createElement("p"); none.textContent = "This process knows of no certificates."; card.replaceChildren(none); return; }
  const rows = sorted.map((c) => {
    const days = Math.floor((c.ends - now) / DAY), kind = days < 7 ? "error" : days < 30 ? "waiting" : "synced";
    return [[c.name], [c.begins ? new Date(c.begins * 1000).toISOString().slice(0, 10) : "", "optional"], [new Date(c.ends * 1000).toISOString().slice(0, 10)],
      [days < 0 ? "has ended" : days < 1 ? "ends today" : `${days} days left`, kind]];
  });
  const first = Math.min(now, ...sorted.map((c) => c.begins || now)), last = Math.max(now + DAY, ...sorted.map((c) => c.ends));
  card.replaceChildren(line(sorted, first, last, now), table([["certificate"], ["from", "optional"], ["until"], ["left"]], rows));
}

function line(certificates, first, last, now) {
  const svg = document.createElementNS(NS, "svg"), x = (time) => (100 * (time - first)) / (last - first), height = Math.min(certificates.length, 40) * 7 + 10;
  svg.setAttribute("viewBox", `0 0 100 ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("height", String(height));
  svg.setAttribute("aria-hidden", "true"); // the table says the same
  certificates.slice(0, 40).forEach((c, index) => {
    const bar = document.createElementNS(NS, "rect"), begins = x(c.begins || first), days = (c.ends - now) / DAY;
    const facts = { class: days < 7 ? "bad" : days < 30 ? "warn" : "ok", x: begins, y: 5 + index * 7, width: Math.max(0.5, x(c.ends) - begins), height: 4 };
    for (const [name, value] of Object.entries(facts)) bar.setAttribute(name, value);
    svg.append(bar);
  });
  svg.append(Object.assign(tick(x(now)), {}));
  svg.lastChild.setAttribute("y2", String(height));
  return svg;
}
