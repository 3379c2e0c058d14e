// Elements, links and texts. All texts are set as text, never as HTML.

const ELEMENTS = 90; // of rows or items that are drawn in a frame; the last row or item may exceed it
const NS = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) listen(element, name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value); // attributes would be refused by the page's policy
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

// Listeners are replaced when the element is updated.
function listen(element, name, listener) {
  element.listeners ||= {};
  element.listeners[name] = listener;
  element.addEventListener(name, (event) => element.listeners[name]?.(event));
}

export const h = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
export const s = (name, attributes = {}, ...children) => fill(document.createElementNS(NS, name), attributes, children);

// Updates the content of an element. Elements that are in both the old and the new content stay in the document, so that
// the focus, selections, and what the user typed or opened are not lost.
export function show(element, ...children) {
  const fresh = document.createDocumentFragment();
  fresh.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  const active = document.activeElement, key = element.contains(active) && active !== element ? keyOf(active) : "";
  update(element, fresh);
  if (key && !element.contains(active)) [...element.querySelectorAll("a,button,input,summary")].find((one) => keyOf(one) === key)?.focus({ preventScroll: true });
}

const keyOf = (element) => element.id || element.dataset.key || element.getAttribute("href") || element.textContent;

// The name by which a node is found again among its siblings.
function nameOfNode(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return node.nodeName;
  const first = /^(li|tr)$/i.test(node.nodeName) ? node.querySelector("a")?.getAttribute("href") : "";
  return `${node.nodeName} ${node.id || node.dataset.key || node.getAttribute("href") || first || ""}`;
}

function update(element, fresh) {
  if (!element.firstChild) { element.append(...fresh.childNodes); return; }
  const old = new Map();
  for (const child of element.childNodes) { const name = nameOfNode(child); old.set(name, [...(old.get(name) || []), child]); }
  const pairs = [...fresh.childNodes].map((child) => [child, old.get(nameOfNode(child))?.shift()]);
  for (const rest of old.values()) for (const child of rest) child.remove();
  let next = element.firstChild;
  for (const [child, match] of pairs) {
    if (match && match === next) next = next.nextSibling; else element.insertBefore(match || child, next);
    if (match) patch(match, child);
  }
}

function patch(node, fresh) {
  if (node.nodeType !== Node.ELEMENT_NODE) {
    if (node.data === fresh.data) return;
    if (isSelected(node)) isBehind = true; else node.data = fresh.data;
    return;
  }
  for (const { name } of [...node.attributes]) if (name !== "style" && name !== "open" && !fresh.hasAttribute(name)) node.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    if (name === "style" || name === "open" || node.getAttribute(name) === value) continue;
    node.setAttribute(name, value);
    if (name === "value" && node !== document.activeElement) node.value = value;
  }
  if (node.style.cssText !== fresh.style.cssText) node.style.cssText = fresh.style.cssText;
  for (const name of Object.keys(fresh.listeners || {})) if (!node.listeners?.[name]) listen(node, name, null);
  if (node.listeners) Object.assign(node.listeners, Object.fromEntries(Object.keys(node.listeners).map((name) => [name, fresh.listeners?.[name]])));
  if (fresh.adopt) fresh.adopt(node); else if (!fresh.hasAttribute("data-own")) update(node, fresh); // others fill elements with data-own
}

let isBehind = false; // whether a text was not updated because it was selected

// Whether any text is selected. To ask the selection itself would lay out the page after every update of a text.
let isSelecting = false;
export const hasSelection = () => isSelecting;

// Calls a function when texts that were not updated are no longer selected.
export function listenToSelection(redraw) {
  document.addEventListener("selectionchange", () => {
    isSelecting = !getSelection().isCollapsed;
    if (isBehind && !isSelecting) { isBehind = false; redraw(); }
  });
}

const isSelected = (node) => isSelecting && getSelection().containsNode(node, true);

// -- addresses of views ----------------------------------------------------------------------------------------------

const part = (text) => encodeURIComponent(text === "" ? "-" : text);
export const to = (...parts) => "#/" + parts.map(part).join("/");
export const parse = (hash) => {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map((one) => safeDecode(one)).map((one) => (one === "-" ? "" : one));
  return { parts, query: new URLSearchParams(query || "") };
};
function safeDecode(text) { try { return decodeURIComponent(text); } catch { return text; } }
export const toService = (service) => to("service", service.namespace, service.host);
export const toObject = (ref, path = "") => to("object", ref.group || "", ref.kind, ref.namespace || "", ref.name) + (path ? `?path=${encodeURIComponent(path)}` : "");
export const toProxy = (id, ...rest) => to("proxy", id, ...rest);
export const toPlace = (place) => {
  const [kind, name] = cutAt(place, " ");
  const [namespace, rest] = cutAt(name, "/");
  if (kind === "namespace") return to("namespace", name);
  return kind === "service" ? to("service", namespace, rest) : toObject({ group: "networking.istio.io", kind: "Gateway", namespace, name: rest });
};
export function cutAt(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + mark.length)];
}

export const link = (href, ...children) => h("a", { href }, ...children);
export const nameOf = (ref) => [ref.namespace, ref.name].filter(Boolean).join("/");
export const objectLink = (ref, path = "") => link(toObject(ref, path), `${ref.kind} ${nameOf(ref)}`);
export const shortHost = (host, namespace) => (host.endsWith(".svc.cluster.local") && host.split(".")[1] === namespace ? host.split(".")[0] : host);
export const serviceLink = (service) => link(toService(service), shortHost(service.host, service.namespace));

// -- texts -----------------------------------------------------------------------------------------------------------

// Compares names, in which numbers count as such. The collator is made at the first use, because that takes a while.
let collator = null;
export const compare = (a, b) => (collator ||= new Intl.Collator(undefined, { numeric: true })).compare(a, b);
export const number = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
export const count = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;
export function bytes(n) {
  const power = n < 1000 ? 0 : n < 1e6 ? 1 : n < 1e9 ? 2 : 3, value = n / 1000 ** power;
  return `${power && value < 100 && value % 1 ? value.toFixed(1) : Math.round(value)} ${["B", "kB", "MB", "GB"][power]}`;
}

export function span(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.floor(seconds))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  const hours = Math.floor(seconds / 3600), minutes = Math.floor(seconds / 60) % 60;
  if (hours < 10) return `${hours} h${minutes ? ` ${minutes} min` : ""}`;
  return hours < 48 ? `${hours} h` : `${Math.floor(seconds / 86400)} days`;
}

// The time of day, with the date if it is not today.
export function clock(time, seconds = false) {
  const date = new Date(time * 1000), now = new Date();
  const text = [date.getHours(), date.getMinutes(), ...(seconds ? [date.getSeconds()] : [])].map((part) => String(part).padStart(2, "0")).join(":");
  return date.toDateString() === now.toDateString() ? text : `${date.toLocaleDateString([], { month: "short", day: "numeric" })} ${text}`;
}

// Time since an event. The clock of the server counts, which may differ from that of the browser.
let clockOffset = 0;
export const setClock = (offset) => { clockOffset = offset; };
export const ago = (time) => `${span(Date.now() / 1000 + clockOffset - time)} ago`;
export const zone = () => new Date().toLocaleTimeString("en", { timeZoneName: "short" }).split(" ").pop();

export const duration = (seconds) => (seconds < 0.0095 ? "< 10 ms" : seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`);

// A status as a coloured shape with a word, so that it does not depend on colours.
export const mark = (level, text) => h("span", { class: `mark ${level}` }, text);
export const code = (text) => h("code", {}, text);

// A command with a button that copies it.
export function command(text) {
  return h("div", { class: "command" }, code(text), h("button", { type: "button", class: "copy", "aria-label": `Copy: ${text}`, onclick: ({ currentTarget: button }) => {
    navigator.clipboard?.writeText(text).then(() => { button.textContent = "copied"; setTimeout(() => { button.textContent = "copy"; }, 1500); });
  } }, "copy"));
}

export function section(title, ...children) {
  return h("section", { class: "part", "data-key": title.replace(/[\d,]+|:.*/g, "") }, h("h3", {}, title), ...children);
}

export function fold(key, title, open, ...children) {
  return h("details", { "data-key": key, open }, h("summary", {}, title), ...children);
}

// Lets the browser draw what has changed, and answer to the user, between the parts of a long update. What is added in
// an animation frame itself is drawn together with what was added just before it.
export const turn = () => new Promise((resolve) => { requestAnimationFrame(() => setTimeout(resolve)); });

// Fills an element with a child for each of the items: some in each frame, so that no frame takes long.
function inFrames(body, items, make) {
  let target = null;
  const add = (start) => {
    let index = start;
    for (let elements = 0; index < items.length && elements < ELEMENTS; index++) {
      const child = make(items[index]), old = target.children[index];
      elements += 1 + child.getElementsByTagName("*").length;
      if (!old) target.append(child); else if (nameOfNode(old) === nameOfNode(child)) patch(old, child); else old.replaceWith(child);
    }
    const current = target;
    if (index < items.length) turn().then(() => { if (target === current && current.source === body) add(index); });
    else while (target.children.length > items.length) target.lastChild.remove();
  };
  body.adopt = (element) => { target = element; element.source = body; add(0); };
  body.adopt(body);
  return body;
}

// A list of items, each of which `make` returns as an li element.
export const list = (items, make, name = "items") => inFrames(h("ul", { class: name }), items, (item) => make(item));

export function table(heads, rows) {
  const head = h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)));
  const body = inFrames(h("tbody"), rows, (cells) => h("tr", {}, cells.map((cell, index) => h("td", { "data-head": heads[index] }, cell))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": heads[0] }, h("table", {}, h("thead", {}, head), body));
}

// Fetches an answer of the dashboard. Raises an error with the server's status and text.
export async function ask(name, parameters = {}, signal = undefined) {
  const answer = await fetch(`/debug/dashboard/${name}?${new URLSearchParams(parameters)}`, { signal });
  if (!answer.ok) throw Object.assign(new Error((await answer.text()).trim() || `HTTP status ${answer.status}`), { status: answer.status });
  return answer.json();
}
