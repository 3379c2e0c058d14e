// The page: what the server tells goes into one state, and each part is drawn from it.
import { drawPicture, describe } from "./picture.js";
import { drawProblems, drawProxies } from "./lists.js";
import { drawCertificates, drawChanges, drawPlots, remember } from "./plots.js";

const PICTURE_MS = 3000; // between two looks at the whole mesh
const by = (id) => document.getElementById(id);
const state = {
  proxies: new Map(), problems: [], certificates: [], points: [], changes: [], mesh: null, expanded: new Set(), chosen: "", query: "", build: "", width: 0,
};
let meshDue = 0;
let meshTimer = 0;

const parts = {
  facts: () => drawFacts(by("facts")),
  picture: () => state.mesh && state.width && drawPicture(by("picture"), state, { choose, toggle }),
  proxies: () => drawProxies(by("proxies"), state),
  problems: () => drawProblems(by("problems"), state),
  plots: () => { drawPlots(by("pushes"), by("process"), state); drawChanges(by("changes"), state); },
  certificates: () => drawCertificates(by("certificates"), state),
};
const wanted = new Set();

// Draws parts in the next frame, each once, whatever was told until then.
function draw(...names) {
  if (wanted.size === 0) requestAnimationFrame(() => { const now = [...wanted]; wanted.clear(); now.forEach((name) => parts[name]()); });
  names.forEach((name) => wanted.add(name));
}

function drawFacts(list) {
  const rows = [...state.proxies.values()];
  const behind = rows.filter((row) => row.state === "waiting").length;
  const refusing = rows.filter((row) => row.state === "error").length;
  const facts = [
    [state.mesh ? state.mesh.services : "…", "services", ""], [rows.length, "proxies", ""], [behind, "not up to date", behind ? "warn" : ""],
    [refusing, "refuse something", refusing ? "bad" : ""], [state.problems.length, "problems", state.problems.length ? "bad" : ""],
  ];
  facts.forEach(([value, name, kind], index) => {
    const item = list.children[index] || list.appendChild(fact(name));
    if (item.className !== kind) item.className = kind;
    if (item.firstChild.textContent !== String(value)) item.firstChild.textContent = String(value);
  });
}

function fact(name) {
  const item = document.createElement("li"), label = document.createElement("span");
  label.textContent = name;
  item.append(document.createElement("b"), label);
  return item;
}

async function fetchMesh() {
  clearTimeout(meshTimer);
  const wait = meshDue - Date.now();
  if (wait > 0) { meshTimer = setTimeout(fetchMesh, wait); return; }
  meshDue = Date.now() + PICTURE_MS;
  const query = [...state.expanded].map((name) => `namespace=${encodeURIComponent(name)}`).join("&");
  const answer = await fetch(`/debug/dashboard/mesh?${query}`).catch(() => null);
  if (!answer || !answer.ok) { meshTimer = setTimeout(fetchMesh, 5000); return; }
  state.mesh = await answer.json();
  draw("picture", "facts");
  if (state.chosen) describe(by("detail"), state);
}

function choose(place) {
  state.chosen = state.chosen === place ? "" : place;
  describe(by("detail"), state);
  draw("picture");
}

function toggle(namespace) {
  if (!state.expanded.delete(namespace)) state.expanded.add(namespace);
  meshDue = 0;
  fetchMesh();
}

function takeProxies(rows, gone = []) {
  const before = state.proxies.size, added = rows.filter((row) => !state.proxies.has(row.id)).length;
  rows.forEach((row) => state.proxies.set(row.id, row));
  gone.forEach((id) => state.proxies.delete(id));
  return added > 0 || state.proxies.size < before;
}

function listen() {
  const events = new EventSource("/debug/dashboard/events");
  events.addEventListener("state", (event) => {
    const told = JSON.parse(event.data);
    state.proxies.clear();
    takeProxies(told.proxies);
    Object.assign(state, { problems: told.problems, certificates: told.certificates, build: told.build });
    by("live").textContent = `Live · ${told.pod || "pilot-discovery"} ${told.build.replaceAll("-unknown", "")}`;
    draw("facts", "proxies", "problems", "certificates", "plots");
    fetchMesh();
  });
  events.addEventListener("change", (event) => {
    const told = JSON.parse(event.data);
    remember(state, told);
    draw("plots");
    let stale = told.picture !== undefined || told.problems !== undefined;
    if (told.proxies) { stale = takeProxies(told.proxies, told.gone) || stale; draw("facts", "proxies"); }
    if (told.problems) { state.problems = told.problems; draw("facts", "problems"); }
    if (stale) fetchMesh();
  });
  events.onerror = () => { by("live").textContent = "Not connected: it is tried again"; };
}

function useTheme() {
  const root = document.documentElement;
  const kept = localStorage.getItem("theme");
  if (kept) root.dataset.theme = kept;
  by("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
  });
}

by("search").addEventListener("submit", (event) => event.preventDefault());
by("query").addEventListener("input", (event) => { state.query = event.target.value.trim().toLowerCase(); draw("picture", "proxies", "problems"); });
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !(event.target instanceof HTMLInputElement)) { event.preventDefault(); by("query").focus(); }
  if (event.key === "Escape" && state.chosen) choose(state.chosen);
});
new ResizeObserver(([seen]) => {
  if (seen.contentRect.width === state.width) return;
  state.width = seen.contentRect.width;
  draw("picture");
}).observe(by("picture"));
useTheme();
listen();
