// The graph: gateways and namespaces, or the services of one namespace with their neighbours.
import { compare, count, cutAt, h, mark, number, s, shortHost, span, to, toPlace, toService, turn } from "./dom.js";
import { rejecting, silent } from "./answer.js";
import { layered, path, stacked } from "./layout.js";

const MOST = 60, BATCH = 15; // boxes of services in a graph, and boxes or lines that are drawn in a frame
const ROW = 8;
const SIZES = [[210, 74], [180, 64], [155, 56], [135, 48], [118, 40], [104, 34]]; // widths of boxes, and gaps between them

// Whether a service rejects plain text: because of its mode, or because its policies need an identity.
const isLocked = (service) => service.mtls === "STRICT" || Boolean(service.mtls && service.needsIdentity);

export const levelOf = (node) => (node.errors || node.refused || node.unready || isUnready(node) ? "bad" : node.stale || node.empty || node.faults || node.warnings || node.total === 0 ? "warn" : "ok");
export const isUnready = (node) => node.total > 0 && !node.ready;

// The state of a place in words, worst first.
export function wordsOf(node) {
  const words = [
    node.refused && `${rejecting(node.refused)} configuration`, node.errors && count(node.errors, "error"),
    node.stale && silent(node.stale), node.unready && `${count(node.unready, "service")} without ready endpoints`,
    isUnready(node) && (node.total === 1 ? "the only endpoint is not ready" : `none of ${node.total} endpoints is ready`), node.total === 0 && "no endpoints",
    node.empty && `${count(node.empty, "service")} without endpoints`, node.faults && (node.count === undefined ? "faults are injected" : `${count(node.faults, "service")} with injected faults`), node.warnings && count(node.warnings, "warning"),
  ].filter(Boolean);
  return words.length ? words.join(", ") : "healthy";
}

// Returns the boxes and lines of a view. With an opened namespace, services that have lines or problems come first.
export function model(mesh, opened, chosen) {
  const namespaces = new Map(mesh.namespaces.map((one) => [`namespace ${one.name}`, one]));
  const gateways = new Map(mesh.gateways.map((one) => [`gateway ${one.namespace}/${one.name}`, one]));
  const touched = new Map();
  const inside = namespaces.get(`namespace ${opened}`);
  const isInside = (place) => place.startsWith(`service ${opened}/`);
  const links = mesh.links.filter((one) => !inside || isInside(one.from) || isInside(one.to));
  for (const one of links) for (const place of [one.from, one.to]) touched.set(place, (touched.get(place) || 0) + 1);
  let services = inside ? inside.services.map((one) => ({ place: `service ${one.namespace}/${one.host}`, ...one })) : [];
  const rank = (one) => (one.place === chosen ? 0 : { bad: 1, warn: 2, ok: 3 }[levelOf(one)] - (touched.has(one.place) ? 1.5 : 0));
  const hidden = Math.max(0, services.length - MOST);
  if (hidden) services = [...services].sort((a, b) => rank(a) - rank(b) || compare(a.host, b.host)).slice(0, MOST);
  services.sort((a, b) => compare(a.host, b.host));
  const nodes = [];
  for (const [place, gateway] of gateways) if (!inside || touched.has(place)) nodes.push({ id: place, kind: "gateway", h: 42, title: gateway.name, about: `gateway in ${gateway.namespace}`, brief: `in ${gateway.namespace}`, data: gateway });
  for (const [place, namespace] of [...namespaces].sort((a, b) => compare(a[0], b[0]))) {
    if (inside ? place !== `namespace ${opened}` && touched.has(place) : true) {
      const parts = [count(namespace.count, "service"), namespace.proxies && count(namespace.proxies, "proxy", "proxies")].filter(Boolean);
      nodes.push({ id: place, kind: "namespace", h: 42, title: namespace.name, about: parts.join(" · "), brief: parts[0], data: namespace });
    }
  }
  for (const service of services) nodes.push({ id: service.place, kind: "service", h: 40, title: shortHost(service.host, service.namespace), about: service.total < 0 ? "" : `${service.ready}/${service.total}`, data: service });
  const shown = new Set(nodes.map((node) => node.id));
  return { nodes, links: links.filter((one) => shown.has(one.from) && shown.has(one.to)), hidden, inside };
}

export class Graph {
  constructor(container) {
    this.boxes = h("div", { class: "boxes" });
    this.canvas = h("div", { class: "canvas" }, this.boxes);
    this.note = h("p", { class: "note" });
    this.container = container;
    this.container.replaceChildren(this.canvas, this.note);
    this.drawing = 0;
    this.signature = "";
    this.elements = new Map();
    this.edges = new Map();
  }

  // Draws a view, or marks what is chosen if nothing else has changed.
  draw(mesh, opened, chosen, traffic, width) {
    const view = model(mesh, opened, chosen);
    const signature = JSON.stringify([view.nodes, view.links, width, traffic]);
    if (signature !== this.signature) { this.signature = signature; this.lay(view, traffic, width); }
    this.choose(chosen);
  }

  lay(view, traffic, width) {
    const rates = traffic?.nodes || {}, flows = new Map((traffic?.edges || []).map((one) => [`${one.from}\n${one.to}`, one]));
    const links = [...view.links], shown = new Set(view.nodes.map((node) => node.id)), known = new Set(links.map((one) => `${one.from}\n${one.to}`));
    for (const flow of flows.values()) if (!known.has(`${flow.from}\n${flow.to}`) && shown.has(flow.from) && shown.has(flow.to)) links.push({ from: flow.from, to: flow.to, kinds: [], by: [], count: 0 });
    for (const node of view.nodes) if (rates[node.id]) node.h += 14;
    const linked = new Set(links.flatMap((one) => [one.from, one.to]));
    const inside = view.nodes.filter((node) => linked.has(node.id)), loose = view.nodes.filter((node) => !linked.has(node.id));
    const { boxes, lines, height } = arrange(inside, links, width);
    let bottom = height;
    if (loose.length) {
      const columns = Math.max(1, Math.floor((width + 12) / 172)), w = Math.floor((width - 12 * (columns - 1)) / columns);
      bottom += inside.length ? 34 : 0;
      const top = bottom;
      loose.forEach((node, index) => {
        const x = (index % columns) * (w + 12), y = top + Math.floor(index / columns) * (node.h + ROW);
        boxes.set(node.id, { x, y, w, h: node.h });
        bottom = Math.max(bottom, y + node.h);
      });
    }
    this.canvas.style.height = `${Math.ceil(bottom) + 4}px`;
    const title = inside.length && loose.length ? [h("p", { class: "loose", style: { top: `${height + 12}px` } }, view.inside ? "No route or policy names these as callers or targets" : "No route or policy connects these")] : [];
    const drawing = ++this.drawing, focused = document.activeElement?.closest?.(".boxes") === this.boxes ? document.activeElement.dataset.place : "";
    const places = [...view.nodes].sort((a, b) => boxes.get(a.id).x - boxes.get(b.id).x || boxes.get(a.id).y - boxes.get(b.id).y);
    this.boxes.querySelector(".loose")?.remove();
    this.boxes.prepend(...title);
    keepOnly(this.elements, boxes);
    keepOnly(this.edges, new Set(lines.map(nameOfLine)));
    const drawBox = (node, index) => {
      const at = boxes.get(node.id), rate = rates[node.id];
      const element = renew(this.elements, node.id, [node, at, rate], () => this.box(node, at, rate)), next = this.boxes.children[index + title.length] || null;
      if (next !== element) this.boxes.insertBefore(element, next);
    };
    const drawLine = (line) => {
      const element = renew(this.edges, nameOfLine(line), [line, flows.get(nameOfLine(line))], () => this.line(line, flows));
      if (!element.parentNode) this.lines.append(element);
    };
    const steps = [...places.map((node, index) => () => drawBox(node, index)), () => this.prepareLines(width, Math.ceil(bottom) + 4), ...lines.map((line) => () => drawLine(line))];
    // A few boxes in each frame, and then a few lines, so that no frame takes long.
    const step = (start) => {
      if (drawing !== this.drawing) return;
      for (const act of steps.slice(start, start + BATCH)) act();
      if (start + BATCH < steps.length) turn().then(() => step(start + BATCH));
      else if (focused && document.activeElement?.dataset.place !== focused) this.elements.get(focused)?.focus({ preventScroll: true });
      this.choose(this.chosen);
    };
    step(0);
    this.note.textContent = view.hidden ? `${number(view.hidden)} more services are in the list beside the graph.` : "";
  }

  // Makes the picture of the lines below the boxes, and sets its size.
  prepareLines(width, height) {
    if (!this.lines) {
      this.lines = s("svg", { class: "lines", "aria-hidden": "true" }, heads());
      this.canvas.prepend(this.lines);
    }
    for (const [name, value] of [["viewBox", `0 0 ${width} ${height}`], ["width", width], ["height", height]]) this.lines.setAttribute(name, value);
  }

  box(node, at, rate) {
    const data = node.data, level = levelOf(data), words = wordsOf(data);
    const signs = node.kind === "service" ? [
      isLocked(data) ? icon("lock") : data.mtls && data.mtls !== "UNKNOWN" && icon("unlocked"), data.access === "restricted" && icon("shield"), data.access === "closed" && icon("closed"),
    ] : [];
    const flow = rate ? h("small", { class: rate.errors > 0.01 * rate.rate ? "flow failing" : "flow", title: rateText(rate) }, shortRate(rate, node.kind !== "service")) : null;
    const about = node.brief && node.about.length > Math.floor((at.w - 46) / 6) ? node.brief : node.about;
    const unseen = ` ${node.kind} ${node.title}, ${node.about ? `${node.about}, ` : ""}${words}${data.mtls ? `, mutual TLS ${data.mtls}${isLocked(data) ? ", plain text rejected" : ""}` : ""}${data.access && data.access !== "open" ? `, access ${data.access}` : ""}`;
    const made = h(
      "a", { class: `box ${node.kind} ${level}${flow ? " rated" : ""}`, href: node.kind === "service" ? toService(data) : toPlace(node.id), "data-place": node.id, title: `${node.title}: ${words}`,
        style: { left: `${at.x}px`, top: `${at.y}px`, width: `${at.w}px`, height: `${at.h}px` },
        onmouseenter: () => this.light(node.id), onmouseleave: () => this.light(""), onfocus: () => this.light(node.id), onblur: () => this.light("") },
      h("span", { class: `shape ${level}`, "aria-hidden": "true" }), h("span", { class: "name" }, middle(node.title, Math.floor((at.w - 46) / 7)), h("small", {}, signs.filter(Boolean), rate?.p99 !== undefined && data.ready === data.total && node.kind === "service" ? null : about, rate?.p99 !== undefined && node.kind === "service" ? h("span", { class: "p99" }, latency(rate.p99)) : null)), flow,
      h("span", { class: "unseen" }, unseen),
    );
    return made;
  }

  line(line, flows) {
    const { edge } = line, flow = flows.get(`${edge.from}\n${edge.to}`), d = line.d || path(line.points);
    const kind = flow && !edge.kinds.length ? "traffic" : edge.kinds.includes("route") ? "route" : "policy";
    const failing = flow && flow.errors > 0.01 * flow.rate;
    const text = `${nameOfPlace(edge.from)} → ${nameOfPlace(edge.to)}: ${edge.by.map((ref) => `${ref.kind} ${ref.namespace}/${ref.name}`).join(", ") || "traffic"}${flow ? ` — ${rateText(flow)}` : ""}`;
    const marker = line.backwards ? { "marker-start": `url(#head-${kind})` } : { "marker-end": `url(#head-${kind})` };
    const made = s("g", { class: `edge ${kind}${failing ? " failing" : ""}` }, s("path", { class: "hit", d }), s("path", { class: "line", d, ...marker }), s("title", {}, text));
    made.addEventListener("click", () => { location.hash = to("edge", edge.from, edge.to); });
    made.ends = [edge.from, edge.to];
    return made;
  }

  // Marks the chosen place or line.
  choose(chosen) {
    this.chosen = chosen;
    for (const [place, element] of this.elements) {
      element.classList.toggle("chosen", place === chosen);
      if (place === chosen) element.setAttribute("aria-current", "true"); else element.removeAttribute("aria-current");
    }
    this.light("");
  }

  // Brings the chosen place to the middle of the picture, if the picture scrolls by itself.
  center() {
    const element = this.elements.get(this.chosen), picture = this.container.closest(".picture");
    if (element && picture.scrollHeight > picture.clientHeight) picture.scrollTop = element.offsetTop + this.container.offsetTop - picture.clientHeight / 2;
  }

  // Highlights the lines of a place, or those of the chosen one.
  light(place) {
    const [from, target] = cutAt(this.chosen || "", "\n"), active = place || (target ? "" : from);
    for (const element of this.edges.values()) {
      const on = target && !place ? element.ends[0] === from && element.ends[1] === target : element.ends.includes(active);
      element.classList.toggle("on", on);
      element.classList.toggle("faint", !on && Boolean(active || target) && (Boolean(place) || this.elements.has(from) || Boolean(target)));
    }
  }
}

const nameOfLine = ({ edge }) => `${edge.from}\n${edge.to}`;

// Removes the elements whose names are not among those.
function keepOnly(elements, names) {
  for (const [name, element] of elements) if (!names.has(name)) { element.remove(); elements.delete(name); }
}

// Returns the element of a name if it shows the same values, or one that replaces it.
function renew(elements, name, values, make) {
  const signature = JSON.stringify(values), old = elements.get(name);
  if (old?.signature === signature) return old;
  const made = make();
  made.signature = signature;
  old?.replaceWith(made);
  elements.set(name, made);
  return made;
}

// Chooses layers where there is room for them, and one column otherwise.
function arrange(nodes, links, width) {
  const first = new Set(nodes.filter((node) => node.kind === "gateway").map((node) => node.id));
  for (const [boxWidth, gap] of SIZES) {
    const columns = Math.floor((width + gap) / (boxWidth + gap));
    if (columns < 3) continue;
    const result = layered(nodes, links, { boxWidth, gap, row: ROW, columns, tallest: 14, first });
    if (result && result.height) return stretch(result, width);
  }
  return stacked(nodes, links, { width, gutter: Math.min(56, 16 + 5 * links.length), row: 8 });
}

// Uses the whole width, up to a limit.
function stretch(result, width) {
  const extra = Math.min(1.5, width / Math.max(1, result.width));
  if (extra <= 1.02) return result;
  const move = (x) => x * extra;
  for (const box of result.boxes.values()) { const right = move(box.x + box.w); box.x = move(box.x); box.w = right - box.x; }
  for (const line of result.lines) line.points = line.points.map(([x, y]) => [move(x), y]);
  return result;
}

// Shortens a long name in the middle, because names often differ only at their ends.
function middle(text, length) {
  if (text.length <= length + 1) return text;
  const end = Math.floor(length / 2);
  return `${text.slice(0, length - end - 1)}…${text.slice(-end)}`;
}

function heads() {
  return s("defs", {}, ["route", "policy", "traffic"].map((kind) => s(
    "marker", { id: `head-${kind}`, class: `head ${kind}`, viewBox: "0 0 8 8", refX: 7.5, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" },
    s("path", { d: "M0 0.5 L8 4 L0 7.5 z" }),
  )));
}

export const nameOfPlace = (place) => {
  const [kind, name] = cutAt(place, " "), [namespace, rest] = cutAt(name, "/");
  return kind === "namespace" ? `namespace ${name}` : kind === "service" ? `${shortHost(rest, namespace)} (${namespace})` : `gateway ${name}`;
};

const perSecond = (rate) => `${rate >= 10 ? rate.toFixed(0) : rate >= 0.1 ? rate.toFixed(1) : rate.toFixed(2)}/s`;
const latency = (ms) => (ms >= 1000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms)} ms`);
// Rounded down, so that 100 % means that no request failed.
const success = (of, digits) => { const share = of.rate ? 100 * (1 - (of.errors || 0) / of.rate) : 100; return `${share === 100 ? "100" : (Math.floor(share * 10 ** digits) / 10 ** digits).toFixed(digits)} %`; };
export const rateText = (of) => `${perSecond(of.rate)} · ${success(of, 2)} succeed${of.p99 !== undefined ? ` · p99 ${latency(of.p99)}` : ""}`;
const shortRate = (of, whole) => `${perSecond(of.rate)}  ${success(of, 1).replace(" ", "")}${whole && of.p99 !== undefined ? `  ${latency(of.p99)}` : ""}`;

const ICONS = {
  lock: "M4 7V5a4 4 0 0 1 8 0v2h1v8H3V7zm2 0h4V5a2 2 0 0 0-4 0z", shield: "M8 1l6 2v5c0 4-3 6-6 7-3-1-6-3-6-7V3zm0 2L4 4.400V8c0 2.600 1.800 4 4 5z",
  unlocked: "M4 7V4.500a3.500 3.500 0 0 1 7 0h-2a1.500 1.500 0 0 0-3 0V7h7v8H3V7z",
  closed: "M8 1a7 7 0 1 1 0 14A7 7 0 0 1 8 1zM4 7v2h8V7z",
};
const icon = (name) => s("svg", { class: `icon ${name}`, viewBox: "0 0 16 16", "aria-hidden": "true" }, s("path", { d: ICONS[name], "fill-rule": "evenodd" }));

export function legend(traffic) {
  return h(
    "div", { class: "legend" },
    h("span", {}, h("i", { class: "line route" }), "routed by a VirtualService or HTTPRoute"), h("span", {}, h("i", { class: "line policy" }), "admitted by an AuthorizationPolicy"),
    traffic ? h("span", {}, h("i", { class: "line traffic" }), "traffic: requests, success, p99") : null,
    mark("ok", "healthy"), mark("warn", "warning, not ready or not responding"), mark("bad", "error or rejected"),
    h("span", {}, icon("lock"), " plain text rejected"), h("span", {}, icon("unlocked"), " plain text accepted"), h("span", {}, icon("shield"), " only some callers"), h("span", {}, icon("closed"), " no callers"),
  );
}
