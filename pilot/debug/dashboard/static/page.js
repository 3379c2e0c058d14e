// The page: its state, what the URL shows of it, and the events that change it.
import { drawAnswer, drawTiles, nameOfProxy } from "./answer.js";
import { charts, pointOf } from "./charts.js";
import { ago, ask, clock, command, h, hasSelection, link, listenToSelection, nameOf, parse, setClock, shortHost, show, span, to, turn } from "./dom.js";
import { Graph, legend, nameOfPlace } from "./graph.js";
import { drawCertificates, drawChanges, drawProblems, drawProxies, overview, recentChanges } from "./lists.js";
import { drawObject } from "./object.js";
import { drawProxy, drawResource, drawResources } from "./proxy.js";
import { listenToSearch } from "./search.js";
import { drawEdge, drawNamespace, drawService } from "./service.js";

const CHANGES = 200, SILENCE = 4, MESH_PAUSE = 2000, TRAFFIC_PAUSE = 15000, TYPING = 200; // seconds; milliseconds
const by = (id) => document.getElementById(id);
const state = { fleet: null, problems: null, findings: [], certificates: [], changes: [], gists: {}, points: [], mesh: null, traffic: null, cpu: 0, memory: 0 };
let view = { kind: "", parts: [], query: new URLSearchParams(), opened: "", chosen: "" };
let heard = 0, offset = 0, shown = null, graph = null, shouldCenter = false, shouldFocus = false, hasNews = false, meshTimer = 0, meshDue = 0, detailDue = 0, trafficTimer = 0, width = 0;

const now = () => Date.now() / 1000 + offset;

// -- what the URL shows ----------------------------------------------------------------------------------------------

const GRAPHS = new Set(["", "namespace", "service", "edge"]);

function read() {
  const { parts, query } = parse(location.hash), kind = parts[0] || "";
  const next = { kind, parts, query, opened: "", chosen: "" };
  const places = { namespace: () => [parts[1], `namespace ${parts[1]}`], service: () => [parts[1], `service ${parts[1]}/${parts[2]}`], edge: () => [openedOf(parts[1]) || openedOf(parts[2]), `${parts[1]}\n${parts[2]}`] };
  if (places[kind] && !mistake(next)) [next.opened, next.chosen] = places[kind]();
  return next;
}
const openedOf = (place) => (place?.startsWith("service ") ? place.slice(8).split("/")[0] : "");
const onlyNamespace = () => (state.mesh?.namespaces.length === 1 ? state.mesh.namespaces[0].name : "");

async function navigate() {
  clearTimeout(typing);
  const before = view;
  view = read();
  if (placeOf(before) !== placeOf(view)) shouldFocus = true;
  shouldCenter = view.kind === "service" || view.kind === "edge";
  announce();
  const mine = view;
  await turn();
  if (view !== mine) return;
  drawHead();
  await turn();
  if (view === mine && opened() !== openedBy(before)) await fetchMesh(true);
  if (view !== mine) return;
  await draw();
  if (view === mine && placeOf(before) !== placeOf(view)) reveal();
}

const placeOf = (one) => one.parts.join("/");
const targetOf = () => (GRAPHS.has(view.kind) ? by("detail") : by("view"));

// Shows the name of what was chosen at once, so that nobody takes what was shown before for it.
function announce() {
  frame();
  const target = targetOf();
  if (target.dataset.place === placeOf(view)) return;
  replaceOther(target);
  show(target, h("h2", {}, titleOf(view)), h("p", { class: "loading", role: "status" }, "Loading …"));
}

const TITLES = { proxies: () => "Proxies", problems: () => "Problems", changes: () => "What changed", certificates: () => "Certificates", load: () => "The last hour", namespace: (name) => `Namespace ${name}`, service: (namespace, host = "") => shortHost(host, namespace), proxy: (id) => nameOfProxy(id), object: (_, kind, namespace, name) => `${kind} ${nameOf({ namespace, name })}`, edge: (from = "", target = "") => `${nameOfPlace(from)} → ${nameOfPlace(target)}` };
const titleOf = (one) => (mistake(one) ? "Not found" : titleOfView(one));
const titleOfView = ({ kind, parts }) => (TITLES[kind] ? TITLES[kind](...parts.slice(1)) : "Overview");

// Scrolls to the details if they are out of sight, or below the graph.
function reveal() {
  const target = GRAPHS.has(view.kind) && view.kind ? by("detail") : by("view"), { top } = target.getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) target.scrollIntoView({ block: "start" });
}

// The view that contains this one: the namespace of a service, or the whole mesh.
const above = () => (view.kind === "service" || view.kind === "edge" ? to("namespace", view.opened) : "#/");
const opened = () => openedBy(view);
const openedBy = (one) => one.opened || onlyNamespace();

// Goes to an address while the user types, without an entry in the history for each letter.
let typing = 0;
function go(hash) { clearTimeout(typing); typing = setTimeout(() => { history.replaceState(null, "", hash); navigate(); }, TYPING); }

// -- drawing ---------------------------------------------------------------------------------------------------------

function frame() {
  const isGraph = GRAPHS.has(view.kind), element = by("view");
  if (shown === (isGraph ? "graph" : "list") || (shown === "empty" && isEmpty())) return;
  delete element.dataset.place;
  shown = isGraph ? "graph" : "list";
  if (isGraph) {
    const canvas = h("div", { id: "graph" }), crumbs = h("p", { id: "crumbs" }), hint = h("div", { id: "hint" });
    element.className = "split";
    element.replaceChildren(h("section", { class: "card picture", "aria-label": "Graph" }, crumbs, canvas, hint), h("section", { class: "card", id: "detail", "aria-label": "Details" }));
    graph = new Graph(canvas);
    watch.disconnect();
    watch.observe(canvas);
    width = canvas.clientWidth;
  } else {
    graph = null;
    element.className = "card";
    element.replaceChildren();
  }
}

const watch = new ResizeObserver(([entry]) => { if (Math.abs(entry.contentRect.width - width) > 1) { width = entry.contentRect.width; drawGraph(); } });

function drawGraph() {
  if (!graph || !state.mesh || !width) return;
  if (isEmpty()) { show(by("graph"), firstSteps()); by("crumbs").textContent = ""; show(by("hint")); graph = null; shown = "empty"; return; }
  const inside = opened(), isLate = state.mesh.opened !== inside;
  by("graph").setAttribute("aria-busy", isLate);
  if (isLate) { show(by("crumbs"), link("#/", "all namespaces"), " › ", inside || "", " loading …"); return; }
  show(by("crumbs"), inside ? [link("#/", "all namespaces"), " › ", link(to("namespace", inside), inside)] : h("span", {}, "Namespaces and gateways. Open a namespace to see its services."));
  graph.draw(state.mesh, inside, view.chosen, state.traffic, width);
  show(by("hint"), legend(state.traffic?.enabled), trafficHint());
  if (shouldCenter) { shouldCenter = false; requestAnimationFrame(() => graph?.center()); }
}

function trafficHint() {
  if (!state.traffic?.enabled) return h("p", { class: "soft" }, "For request rates, success and latency on the boxes and lines, start pilot-discovery with ", h("code", {}, "--prometheusURL=http://prometheus.istio-system:9090"), ".");
  return state.traffic.error ? h("p", { class: "verdict" }, `No traffic: ${state.traffic.error}`) : null;
}

const isEmpty = () => state.mesh && !state.mesh.services && state.fleet && !state.fleet.proxies && !view.kind;

function firstSteps() {
  return h(
    "div", { class: "steps" }, h("h2", {}, "Three steps to a mesh"),
    h("ol", {}, h("li", {}, h("b", {}, "Give it services. "), "Connect it to a cluster, or write objects to a folder:", command("pilot-discovery discovery --configDir ./mesh")),
      h("li", {}, h("b", {}, "Start a proxy. "), "Have sidecars injected into a namespace, and restart its Pods:", command("kubectl label namespace default istio-injection=enabled"), command("kubectl rollout restart deployment -n default")),
      h("li", {}, h("b", {}, "Look whether it is up to date. "), "It appears on this page, and here:", command("pilotctl proxy-status"))),
    h("p", { class: "soft" }, "The page shows them as soon as they are there."),
  );
}

let pending = null, isBehind = false; // the view whose content is being fetched, and whether there was news meanwhile
let drawn = { view: null, text: "" }; // the view whose content is shown, and the answer that it was drawn from

// Draws the graph and the content of the view. An answer that arrives after another view was chosen is dropped.
async function draw() {
  frame();
  drawGraph();
  if (!state.fleet) return;
  if (pending === view) { isBehind = true; return; }
  const mine = pending = view, isNew = drawn.view !== view;
  isBehind = false;
  try {
    if (isNew) await turn();
    const content = view === mine ? await detail(isNew) : undefined;
    if (view === mine && content !== undefined) await fillView(content, isNew, () => view === mine);
  } catch (error) {
    if (view === mine) await fail(error, isNew);
  }
  if (pending !== mine) return;
  pending = null;
  if (isBehind) draw();
}

async function fillView(content, isNew, isCurrent) {
  const target = targetOf();
  announce();
  show(target, content);
  drawn.view = view;
  await after(target, isCurrent);
  if (isNew) await turn();
  if (!isNew || !isCurrent()) return;
  focusContent(target);
  if (view.kind === "object") showMark(target);
}

// The parts that the address of each view has, and how many of them it needs at least.
const VIEWS = { namespace: ["NAMESPACE"], service: ["NAMESPACE", "HOST"], edge: ["FROM", "TO"], object: ["GROUP", "KIND", "NAMESPACE", "NAME"], proxy: ["ID"], proxies: [], problems: [], changes: [], certificates: [], load: [] };

// Returns what is wrong with the address of a view, or "".
function mistake({ kind, parts }) {
  if (kind && !Object.hasOwn(VIEWS, kind)) return `There is no view “${kind}”.`;
  const needed = VIEWS[kind] || [];
  return parts.length <= needed.length && needed.length ? `The address is incomplete: it is #/${[kind, ...needed].join("/")}.` : "";
}

// Says what is not there, with similar names.
async function sayMissing(target, text) {
  const mine = view, [kind, ...rest] = view.parts;
  const nearest = await ask("nearest", { address: [kind, ...(kind === "proxy" ? [nameOfProxy(rest[0] || "")] : rest)].join("\n") }).catch(() => []);
  if (view !== mine) return;
  replaceOther(target);
  show(
    target, h("h2", {}, "Not found"), h("p", {}, text),
    nearest.length ? [h("p", {}, "Did you mean:"), h("ul", { class: "items" }, nearest.map((one) => h("li", {}, link(to(...one.address), one.name))))] : h("p", { class: "none" }, "No similar name is known. The search above finds services, proxies, objects and addresses."),
    h("p", { class: "soft views" }, "Views: ", [["#/", "the mesh"], ["#/proxies", "proxies"], ["#/problems", "problems"], ["#/changes", "changes"], ["#/certificates", "certificates"], ["#/load", "load of the last hour"]].map(([href, name], index) => [index ? ", " : "", link(href, name)]), "."),
  );
}

// Says that there is no such thing. If the control plane is not responding, what is shown stays, and the banner says so.
async function fail(error, isNew) {
  const target = targetOf();
  drawn = { view: null, text: "" };
  if (error.status !== 404) { if (isNew) show(target, h("h2", {}, titleOf(view)), h("p", { class: "none" }, error.status ? error.message : "The control plane is not responding.")); return; }
  await sayMissing(target, error.message);
}

// Scrolls the listing to its marked line, but not the page, whose first lines say what is wrong.
function showMark(target) {
  const line = target.querySelector(".marked"), listing = line?.closest(".listing");
  if (listing) listing.scrollTop += line.getBoundingClientRect().top - listing.getBoundingClientRect().top - listing.clientHeight / 3;
}

// Empties an element that shows another view, because only the same view is updated in place.
function replaceOther(target) {
  const place = placeOf(view);
  if (target.dataset.place !== undefined && target.dataset.place !== place) target.replaceChildren();
  target.dataset.place = place;
}

// Moves the focus to the heading of a view that was opened, so that the keyboard continues there.
function focusContent(target = by("detail") || by("view")) {
  if (!shouldFocus || document.activeElement?.type === "search") return;
  shouldFocus = false;
  const heading = target.querySelector("h2");
  heading?.setAttribute("tabindex", "-1");
  heading?.focus({ preventScroll: true });
}

// Fetches an answer, and returns undefined if it is the same as the one that is shown.
async function fresh(isNew, name, parameters, extra) {
  const mine = view, answer = await ask(name, parameters), text = JSON.stringify([answer, extra]);
  if (view !== mine || (!isNew && drawn.text === text)) return undefined;
  drawn.text = text;
  return answer;
}

async function detail(isNew) {
  const [kind, ...rest] = view.parts, { query } = view;
  detailDue = Date.now() + MESH_PAUSE;
  const wrong = mistake(view);
  if (wrong) throw Object.assign(new Error(wrong), { status: 404 });
  if (kind === "service") { const answer = await fresh(isNew, "service", { namespace: rest[0], host: rest[1] }, [state.changes[0], state.fleet.unhealthy]); return answer && drawService(answer, state); }
  if (kind === "object") { const answer = await fresh(isNew, "object", { group: rest[0], kind: rest[1], namespace: rest[2], name: rest[3] }, [state.changes[0], state.fleet.unhealthy]); return answer && drawObject(answer, state, query.get("path") || ""); }
  if (kind === "proxies") { const answer = await fresh(isNew, "proxies", Object.fromEntries(query)); return answer && drawProxies(answer, query, now(), go); }
  if (kind === "proxy") { const answer = await fresh(isNew, "proxy", { id: rest[0] }); return answer && drawProxy(answer, rest[1], rest[2], now()); }
  if (kind === "problems") return drawProblems(state, query);
  if (kind === "changes") return drawChanges(state, query);
  if (kind === "certificates") return drawCertificates(state, now());
  if (kind === "load") return [h("h2", {}, "The last hour"), charts(state.points, state.changes, now()), stall()];
  if (state.mesh?.opened !== opened()) return undefined;
  if (kind === "edge") return drawEdge(rest[0], rest[1], state);
  if (kind === "namespace" && !state.mesh.namespaces.some((one) => one.name === rest[0]) && !state.fleet.namespaces[rest[0]] && !state.problems.items.some((one) => one.namespace === rest[0])) throw Object.assign(new Error(`There is no namespace ${rest[0]} with services or proxies.`), { status: 404 });
  return opened() && (kind || onlyNamespace()) && !isEmpty() ? drawNamespace(opened(), state) : overview(state);
}

async function after(target, isCurrent) {
  const [kind, id, type, name] = view.parts;
  if (kind !== "proxy" || !type) return;
  const element = target.querySelector("#resources");
  await (name ? drawResource(element, id, type, name, isCurrent) : drawResources(element, id, type, view.query, go, isCurrent));
}

function stall() {
  const one = state.stall;
  return h("p", { class: "soft" }, one ? `The event loop was blocked for at most ${one.seconds.toFixed(2)} s in the last hour, at ${clock(one.time, true)} by ${one.work}${one.subject ? ` (${one.subject})` : ""}.` : "The event loop was not blocked in the last hour.");
}

function drawHead() {
  if (!state.fleet) return;
  const isOverview = !view.kind;
  drawAnswer(by("answer"), state, now(), !isOverview);
  drawTiles(by("tiles"), state, !isOverview);
  by("recent").hidden = !isOverview || isEmpty();
  drawRecent();
}

const SHOWN_BY_RECENT = ["changes", "gists", "problems", "findings", "fleet"];
let recents = {}, isRecentDue = false; // the state whose recent changes are shown, and whether a newer one will be drawn
async function drawRecent() {
  const recent = by("recent");
  if (isRecentDue || recent.hidden || SHOWN_BY_RECENT.every((name) => recents[name] === state[name])) return;
  isRecentDue = true;
  await turn();
  isRecentDue = false;
  if (recent.hidden) return;
  recents = { ...state };
  show(recent, recentChanges(state));
}

// -- data ------------------------------------------------------------------------------------------------------------

let meshAsked = 0, trafficAsked = 0; // the numbers of the last requests: answers to earlier ones are dropped
async function fetchMesh(isUrgent = false) {
  clearTimeout(meshTimer);
  const wait = meshDue - Date.now();
  if (!isUrgent && wait > 0) { meshTimer = setTimeout(fetchMesh, wait); return; }
  meshDue = Date.now() + MESH_PAUSE;
  const mine = ++meshAsked, mesh = await askMesh(opened()).catch(() => null);
  if (mine !== meshAsked) return;
  if (!mesh) { meshTimer = setTimeout(fetchMesh, 5000); return; }
  state.mesh = mesh;
  if (mesh.opened !== opened()) fetchMesh(true).then(draw); // there is a second namespace now
  drawHead();
  if (shown === "empty" && state.mesh.services) shown = null;
  if (isUrgent) drawGraph(); else draw();
}

// Returns the mesh with a namespace opened. The only namespace is always open.
async function askMesh(namespace) {
  const mesh = await ask("mesh", { namespace }), only = mesh.namespaces.length === 1 ? mesh.namespaces[0].name : "";
  return namespace || !only ? { ...mesh, opened: namespace } : { ...await ask("mesh", { namespace: only }), opened: only };
}

async function fetchTraffic() {
  clearTimeout(trafficTimer);
  if (!document.hidden) {
    const mine = ++trafficAsked, traffic = await ask("traffic", { namespace: opened() }).catch(() => state.traffic); // the banner says it
    if (mine !== trafficAsked) return;
    state.traffic = traffic;
    drawGraph();
  }
  if (state.traffic?.enabled) trafficTimer = setTimeout(fetchTraffic, TRAFFIC_PAUSE);
}

function take(update) {
  heard = Date.now() / 1000;
  offset = update.time - heard;
  setClock(offset);
  const parts = ["fleet", "problems", "findings", "changes", "gists", "certificates", "cpu", "memory", "stall"].filter((name) => update[name] !== undefined);
  for (const name of parts) state[name] = name === "changes" && !update.history ? merged(update.changes) : update[name];
  if (update.history) state.points = update.history.map(pointOf);
  if (update.point) { state.points.push(pointOf(update.point)); while (state.points.length > 360) state.points.shift(); }
  const changed = ["fleet", "problems", "findings", "changes", "gists", "certificates", "point"].some((name) => update[name] !== undefined);
  return changed;
}

// The changes with those that were sent again, newest first.
function merged(changes) {
  const byNumber = new Map([...state.changes, ...changes].map((change) => [change.number, change]));
  return [...byNumber.values()].sort((a, b) => b.number - a.number).slice(0, CHANGES);
}

function listen() {
  const events = new EventSource("/debug/dashboard/events");
  events.addEventListener("state", async (event) => {
    const update = JSON.parse(event.data);
    take(update);
    by("build").textContent = `${update.pod || "pilot-discovery"} ${update.build.replaceAll("-unknown", "")}`;
    drawHead();
    banner();
    await firstMesh;
    drawn = { view: null, text: "" };
    draw();
    if (update.traffic) fetchTraffic();
  });
  events.addEventListener("change", (event) => {
    const update = JSON.parse(event.data);
    hasNews = take(update) || hasNews;
    requestAnimationFrame(async () => {
      if (hasNews) drawHead();
      await turn();
      if (update.graph !== undefined || update.problems || update.fleet || update.revision !== undefined) { hasNews = false; fetchMesh(); }
      else if (hasNews && Date.now() > detailDue) { hasNews = false; draw(); }
    });
    banner();
  });
}

// Says how old the page is if the control plane is not responding.
function banner() {
  const age = Date.now() / 1000 - heard, element = by("banner");
  const isSilent = heard > 0 && age > SILENCE;
  if (element.hidden !== !isSilent) element.hidden = !isSilent;
  document.body.classList.toggle("stale", isSilent);
  if (isSilent) element.textContent = `The control plane is not responding. What you see is ${span(age)} old, from ${clock(heard + offset, true)}.`;
  by("live").textContent = isSilent ? "disconnected" : heard ? "live" : "";
}

// -- start -----------------------------------------------------------------------------------------------------------

function useTheme() {
  const root = document.documentElement, theme = localStorage.getItem("theme");
  if (theme) root.dataset.theme = theme;
  by("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
  });
}

view = read();
announce();
const firstMesh = fetchMesh(true).then(draw);
listen();
useTheme();
listenToSearch(by("query"), by("results"), by("found"));
addEventListener("hashchange", navigate);
listenToSelection(() => { drawn.text = ""; drawHead(); draw(); });
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); shouldFocus = true; focusContent(); });
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && view.kind && !event.target.closest?.("#search")) location.hash = above(); });
setInterval(() => { banner(); for (const one of hasSelection() ? [] : document.querySelectorAll(".age")) if (one.textContent !== ago(one.dataset.time)) one.textContent = ago(one.dataset.time); if (state.fleet?.unhealthy.length) drawAnswer(by("answer"), state, now(), Boolean(view.kind)); }, 1000);
