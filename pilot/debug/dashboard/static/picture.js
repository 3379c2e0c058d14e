// The mesh as a picture: gateways, namespaces with their services, and lines for routes and policies.
import { compare } from "./lists.js";

const NS = "http://www.w3.org/2000/svg";
const WIDEST = 250, ROW = 26, HEAD = 44, GAP = 36, PAD = 12, MARGIN = 40;
let BOX = WIDEST;

function element(name, attributes, ...children) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
const stateOf = (service) => (service.problems ? "bad" : service.ready ? "ok" : "warn");
const WORDS = { ok: "ready", warn: "without endpoints", bad: "with problems" };

// Makes an element something that keyboard and pointer can act on.
function acts(made, label, action) {
  made.setAttribute("tabindex", "0");
  made.setAttribute("role", "button");
  made.setAttribute("aria-label", label);
  made.addEventListener("click", action);
  made.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); action(); } });
  return made;
}

// Draws the picture into `card`. `actions` has choose(place) and toggle(namespace).
export function drawPicture(card, state, actions) {
  const focused = card.contains(document.activeElement) ? document.activeElement.dataset.place : "";
  const width = Math.max(state.width, 240); // asking the card would have everything laid out that was changed until now
  const single = width < 2 * WIDEST + GAP; // one column, with room for the lines beside it
  BOX = single ? width - MARGIN - PAD : WIDEST;
  const mesh = state.mesh;
  if (!mesh.namespaces.length && !mesh.gateways.length) { card.replaceChildren(note("No service is configured.")); return; }
  const places = new Map();
  const nodes = element("g", {});
  const wide = width > 2 * BOX + 3 * GAP;
  let top = PAD, left = single ? MARGIN : PAD;
  mesh.gateways.forEach((gateway, index) => {
    const abreast = wide || single ? 1 : Math.max(1, Math.floor((width - PAD) / (BOX + PAD)));
    const y = PAD + Math.floor(index / abreast) * (ROW + 8);
    nodes.append(gatewayNode(gateway, left + (index % abreast) * (BOX + PAD), y, places, state, actions));
    top = Math.max(top, y + ROW + 8);
  });
  if (wide && mesh.gateways.length) { left = PAD + BOX + 2 * GAP; top = PAD; } else if (mesh.gateways.length) top += GAP / 2;
  const columns = Math.max(1, Math.floor((width - left) / (BOX + GAP)));
  const heights = new Array(columns).fill(top);
  for (const namespace of [...mesh.namespaces].sort((a, b) => compare(a.name, b.name))) {
    const column = heights.indexOf(Math.min(...heights));
    const x = left + column * (BOX + GAP), y = heights[column];
    const height = HEAD + namespace.services.length * ROW + (namespace.services.length ? 6 : 0);
    nodes.append(namespaceNode(namespace, x, y, height, places, state, actions));
    heights[column] = y + height + GAP / 2;
  }
  const height = Math.max(...heights, top, PAD + mesh.gateways.length * (wide ? ROW + 8 : 0)) + PAD;
  const links = element("g", { "aria-hidden": "true" });
  for (const link of mesh.links) drawLink(links, link, places, state.chosen);
  card.replaceChildren(element("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, links, nodes));
  if (focused) card.querySelector(`[data-place="${CSS.escape(focused)}"]`)?.focus();
}

function note(text) {
  const made = document.createElement("p");
  made.textContent = text;
  return made;
}

function node(place, x, y, places, state, matches, ...children) {
  const made = element("g", { transform: `translate(${x} ${y})`, "data-place": place }, ...children);
  if (state.chosen === place) made.classList.add("on");
  if (state.query && !matches) made.classList.add("faint");
  return made;
}

function gatewayNode(gateway, x, y, places, state, actions) {
  const name = `${gateway.namespace}/${gateway.name}`, place = `gateway ${name}`;
  places.set(place, { x, y, width: BOX, height: ROW });
  const kind = gateway.problems ? "bad" : "ok";
  const made = node(
    place, x, y, places, state, name.toLowerCase().includes(state.query),
    element("rect", { class: "item", width: BOX, height: ROW, rx: 13 }), element("circle", { class: kind, cx: 14, cy: ROW / 2, r: 4.5 }),
    element("text", { x: 26, y: 17.5 }, cut(`gateway ${name}`, 32)),
  );
  return acts(made, `Gateway ${name}, ${gateway.problems} problems`, () => actions.choose(place));
}

function namespaceNode(namespace, x, y, height, places, state, actions) {
  const place = `namespace ${namespace.name}`;
  places.set(place, { x, y, width: BOX, height: HEAD });
  const matches = namespace.name.toLowerCase().includes(state.query);
  const kind = namespace.problems ? "bad" : namespace.unready ? "warn" : "ok";
  const counts = [[namespace.count, "service", "services"], [namespace.proxies, "proxy", "proxies"], [namespace.problems, "problem", "problems"]];
  const about = counts.filter(([n, one]) => n || one === "service").map(([n, one, many]) => `${n} ${n === 1 ? one : many}`).join(" · ");
  const head = node(
    place, 0, 0, places, state, matches || namespace.services.some((s) => s.host.includes(state.query)),
    element("rect", { class: "box", width: BOX, height, rx: 8 }), element("circle", { class: kind, cx: 16, cy: 17, r: 5 }),
    element("text", { x: 28, y: 21.5, "font-weight": 600 }, cut(namespace.name, 28)), element("text", { class: "soft", x: 28, y: 36 }, about),
  );
  acts(head, `Namespace ${namespace.name}: ${about}, ${WORDS[kind]}`, () => actions.toggle(namespace.name));
  head.setAttribute("aria-expanded", String(namespace.services.length > 0));
  const group = element("g", { transform: `translate(${x} ${y})` }, head);
  [...namespace.services].sort((a, b) => compare(a.host, b.host)).forEach((service, index) => {
    const at = HEAD + index * ROW;
    group.append(serviceNode(service, namespace, at, places, { x, y }, state, actions));
  });
  return group;
}

function serviceNode(service, namespace, at, places, origin, state, actions) {
  const place = `service ${service.host}`, kind = stateOf(service);
  places.set(place, { x: origin.x + 8, y: origin.y + at, width: BOX - 16, height: ROW - 4 });
  const name = service.host.split(`.${namespace.name}.`)[0];
  const made = node(
    place, 8, at, places, state, `${service.host} ${namespace.name}`.toLowerCase().includes(state.query),
    element("rect", { class: "item", width: BOX - 16, height: ROW - 4, rx: 5 }), element("circle", { class: kind, cx: 12, cy: 11, r: 4 }),
    element("text", { x: 22, y: 15.5 }, cut(name, 25)), element("text", { class: "soft", x: BOX - 24, y: 15.5, "text-anchor": "end" }, `${service.ready}/${service.total}`),
  );
  const closed = service.callers ? ", not open to everybody" : "";
  return acts(made, `Service ${service.host}: ${service.ready} of ${service.total} endpoints ready, ${WORDS[kind]}${closed}`, () => actions.choose(place));
}

function drawLink(group, link, places, chosen) {
  const from = places.get(link.from), to = places.get(link.to);
  if (!from || !to) return;
  const right = to.x >= from.x + from.width;
  const x1 = right ? from.x + from.width : from.x, y1 = from.y + from.height / 2;
  const x2 = to.x, y2 = to.y + to.height / 2;
  const bend = Math.max(24, Math.abs(x2 - x1) / 2);
  const path = element("path", { class: `link ${link.kind}`, d: `M${x1} ${y1} C${right ? x1 + bend : x1 - bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` });
  if (chosen && (link.from === chosen || link.to === chosen)) path.classList.add("on");
  else if (chosen) path.classList.add("faint");
  path.append(element("title", {}, `${link.from} → ${link.to}${link.by ? ` by VirtualService ${link.by}` : " by AuthorizationPolicy"}${link.count > 1 ? ` (${link.count})` : ""}`));
  group.append(path);
}

// Says in words what is known of the chosen service or gateway.
export function describe(card, state) {
  card.hidden = !state.chosen;
  if (!state.chosen) return;
  const mesh = state.mesh, links = mesh.links.filter((link) => link.to === state.chosen || link.from === state.chosen);
  const service = mesh.namespaces.flatMap((n) => n.services).find((s) => `service ${s.host}` === state.chosen);
  const facts = service ? [
    ["namespace", service.namespace], ["ports", service.ports.join(", ")], ["endpoints", `${service.ready} of ${service.total} ready`],
    ["may be called by", service.callers ? service.callers.map(([n, a]) => (a ? `${a} of ${n}` : `all of ${n}`)).join(", ") || "nobody that is named" : "everybody in the mesh"],
    ["policies", service.policies.join(", ") || "none"], ["problems", service.problems || "none"],
  ] : [];
  const routes = [...new Set(links.filter((l) => l.kind === "route").map((l) => `${l.by} (${l.from === state.chosen ? `to ${l.to}` : `from ${l.from}`})`))];
  facts.push(["routes", routes.join(", ") || "none"]);
  const title = document.createElement("h3"), list = document.createElement("dl");
  title.textContent = state.chosen;
  for (const [name, value] of facts) {
    const term = document.createElement("dt"), text = document.createElement("dd");
    term.textContent = name;
    text.textContent = String(value);
    list.append(term, text);
  }
  card.replaceChildren(title, list);
}
