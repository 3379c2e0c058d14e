// Elements, links and texts. All texts are set as text, never as HTML.

const ROWS = 20; // rows of a table that are drawn in a frame
const NS = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value); // attributes would be refused by the page's policy
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

export const h = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
export const s = (name, attributes = {}, ...children) => fill(document.createElementNS(NS, name), attributes, children);

// Replaces the content of an element, and keeps the focus on the link or control that had it, and open details open.
export function show(element, ...children) {
  const active = document.activeElement, inside = active && active !== element && element.contains(active);
  const key = inside ? keyOf(active) : "";
  const toggled = new Map([...element.querySelectorAll("details[data-key]")].map((one) => [one.dataset.key, one.open]));
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  for (const one of element.querySelectorAll("details[data-key]")) if (toggled.has(one.dataset.key)) one.open = toggled.get(one.dataset.key);
  if (key) [...element.querySelectorAll("a,button,input,summary")].find((one) => keyOf(one) === key)?.focus({ preventScroll: true });
}

const keyOf = (element) => element.id || element.getAttribute("href") || element.textContent;

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

export const compare = new Intl.Collator(undefined, { numeric: true }).compare;
const numbers = new Intl.NumberFormat("en");
export const count = (n, one, many = `${one}s`) => `${numbers.format(n)} ${n === 1 ? one : many}`;
export const number = (n) => numbers.format(n);
export function bytes(n) {
  const power = n < 1000 ? 0 : n < 1e6 ? 1 : n < 1e9 ? 2 : 3, value = n / 1000 ** power;
  return `${power && value < 100 && value % 1 ? value.toFixed(1) : Math.round(value)} ${["B", "kB", "MB", "GB"][power]}`;
}

export function span(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.floor(seconds))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} days`;
}

// The time of day, with the date if it is not today.
export function clock(time, seconds = false) {
  const date = new Date(time * 1000), now = new Date();
  const text = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: seconds ? "2-digit" : undefined, hour12: false });
  return date.toDateString() === now.toDateString() ? text : `${date.toLocaleDateString([], { month: "short", day: "numeric" })} ${text}`;
}

export const duration = (seconds) => (seconds < 0.0095 ? "< 10 ms" : seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`);

// A status as a coloured shape with a word, so that it does not depend on colours.
export const mark = (level, text) => h("span", { class: `mark ${level}` }, text);
export const code = (text) => h("code", {}, text);

// A command with a button that copies it.
export function command(text) {
  const button = h("button", { type: "button", class: "copy", "aria-label": `Copy: ${text}`, onclick: () => {
    navigator.clipboard?.writeText(text).then(() => { button.textContent = "copied"; setTimeout(() => { button.textContent = "copy"; }, 1500); });
  } }, "copy");
  return h("div", { class: "command" }, code(text), button);
}

export function section(title, ...children) {
  return h("section", { class: "part" }, h("h3", {}, title), ...children);
}

export function fold(key, title, open, ...children) {
  return h("details", { "data-key": key, open }, h("summary", {}, title), ...children);
}

export function table(heads, rows) {
  const head = h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)));
  const body = h("tbody", {});
  // Some rows in each frame, so that no frame takes long.
  const add = (start) => {
    body.append(...rows.slice(start, start + ROWS).map((cells) => h("tr", {}, cells.map((cell, index) => h("td", { "data-head": heads[index] }, cell)))));
    if (start + ROWS < rows.length) requestAnimationFrame(() => add(start + ROWS));
  };
  add(0);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": heads[0] }, h("table", {}, h("thead", {}, head), body));
}

// Fetches an answer of the dashboard. Raises an error with the server's text.
export async function ask(name, parameters = {}, signal = undefined) {
  const answer = await fetch(`/debug/dashboard/${name}?${new URLSearchParams(parameters)}`, { signal });
  if (!answer.ok) throw new Error((await answer.text()).trim() || `HTTP status ${answer.status}`);
  return answer.json();
}
