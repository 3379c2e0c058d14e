// The state of the mesh in one sentence, and what else is affected.
import { ago, clock, count, h, link, mark, nameOf, number, objectLink, show, span, to, toProxy } from "./dom.js";

const DAY = 86400;
const TYPES = { cds: "clusters", eds: "endpoints", lds: "listeners", rds: "routes", sds: "secrets", ecds: "extensions", nds: "names" };

export const nameOfProxy = (id) => id.replace(/-\d+$/, ""); // without the number of the connection
export const proxyName = (row) => (row.name.includes(".") ? row.name : `${row.name}.${row.namespace}`);
export const typesOf = (types) => types.map((type) => TYPES[type] || type).join(" and ") || "configuration";

// The error of a proxy in Envoy's words, without the name of the type.
export const errorOf = (row) => (row.error_types.length === 1 && row.error.startsWith(`${row.error_types[0]}: `) ? row.error.slice(row.error_types[0].length + 2) : row.error);

// The terms for the states of proxies, which no other module repeats.
export const STATE = { refused: "bad", stale: "warn", waiting: "busy", synced: "ok" };
export const STATE_TEXT = { refused: "rejects", stale: "not responding", waiting: "being updated", synced: "up to date" };
export const rejecting = (n) => count(n, "proxy rejects", "proxies reject");
export const silent = (n) => count(n, "proxy is not responding", "proxies are not responding");

export function stateText(row) {
  if (row.state === "refused") return [`rejects its ${typesOf(row.error_types)} `, since(row.error_since)];
  return row.state === "stale" ? [`${STATE_TEXT.stale} `, since(row.waits_since)] : STATE_TEXT[row.state];
}

const since = (time) => [`since ${clock(time)} (`, h("span", { class: "age", "data-time": time }, ago(time)), ")"];

// A proxy that rejects resources or is not responding: since when, the error, and the objects that cause it.
export const unhealthyItem = (row, ...more) => h("li", {}, link(toProxy(row.id), proxyName(row)), " ", mark(STATE[row.state], stateText(row)), row.error ? h("p", {}, errorOf(row)) : null, row.causes.length ? h("p", { class: "soft" }, "caused by ", objectLink(row.causes[0]), row.causes.length > 1 ? ` and ${count(row.causes.length - 1, "other object")}` : "") : null, more);

// A part of a sentence from the server: a text, a link, or a time.
function partOf(part, now) {
  if (typeof part === "string") return part;
  if (part.href) return link(part.href, part.text);
  return part.form === "since" ? since(part.time) : span(Math.abs(now - part.time));
}

// Returns whether a Gateway or the mesh uses a certificate.
export const isUsed = (certificate) => certificate.usedBy.length > 0 || !certificate.name.startsWith("Secret ");

export function listed(items, last = ", ") {
  const first = items.slice(0, 4), rest = items.length - first.length;
  return [first.map((one, index) => [index ? (index === items.length - 1 ? last : ", ") : "", one]), rest > 0 ? ` and ${rest} more` : ""];
}

// Draws the headline, and the other findings below it. Beside details (`isBrief`), it is one line, and on a phone their number.
export function drawAnswer(element, { findings, problems }, now, isBrief) {
  const [first, ...rest] = findings, sentence = (one) => one.parts.map((part) => partOf(part, now));
  const more = rest.filter((one) => one.level !== "busy").length, isBad = first.level === "bad" || first.level === "warn";
  const text = h("span", { class: isBrief && isBad ? "long" : "" }, sentence(first)), short = isBrief && isBad ? h("a", { class: "short", href: "#/" }, `${count(more + 1, "problem")} of the mesh`) : null;
  element.classList.toggle("brief", isBrief);
  show(element, h("p", { class: `headline ${first.level}` }, mark(first.level, ""), text, short), !rest.length ? null : !isBrief ? h("ul", { class: "also" }, rest.map((one) => h("li", {}, mark(one.level, ""), h("span", {}, sentence(one))))) : more ? h("a", { class: "long", href: "#/" }, `${number(more)} more`) : null);
  document.title = `${problems.counts.errors ? `(${count(problems.counts.errors, "error")}) ` : ""}Mesh`;
}

// Draws the tiles, which are links to lists. Beside details, they are one line.
export function drawTiles(element, state, isBrief) {
  const { fleet, problems, mesh, changes, certificates } = state, now = Date.now() / 1000;
  const tile = (href, value, name, level = "", more = "", moreLevel = "") => link(href, h("b", { class: level }, value), h("span", {}, name, more ? h("small", { class: moreLevel }, more) : null));
  const unsynced = [fleet.refused && `${number(fleet.refused)} ${fleet.refused === 1 ? "rejects" : "reject"}`, fleet.stale && `${number(fleet.stale)} ${STATE_TEXT.stale}`].filter(Boolean).join(", ");
  const other = [problems.counts.warnings && count(problems.counts.warnings, "warning"), problems.counts.infos && count(problems.counts.infos, "note")].filter(Boolean).join(", ");
  element.classList.toggle("brief", isBrief);
  show(
    element, tile("#/", mesh ? number(mesh.services) : "…", mesh?.services === 1 ? "service" : "services", "", mesh ? `in ${count(mesh.namespaces.length, "namespace")}` : ""),
    tile(to("proxies"), number(fleet.proxies), fleet.proxies === 1 ? "proxy" : "proxies", "", unsynced || (fleet.waiting ? `${number(fleet.waiting)} ${STATE_TEXT.waiting}` : fleet.proxies ? STATE_TEXT.synced : "none connected"), fleet.refused ? "bad" : fleet.stale ? "warn" : ""),
    tile(to("problems"), number(problems.counts.errors), problems.counts.errors === 1 ? "error" : "errors", problems.counts.errors ? "bad" : "", other),
    tile(to("changes"), changes.length ? clock(changes[0].time) : "–", "last change", "", changes.length ? h("span", { class: "age", "data-time": changes[0].time }, ago(changes[0].time)) : "nothing changed"),
    certificatesTile(tile, certificates, now),
  );
}

function certificatesTile(tile, certificates, now) {
  const used = certificates.filter(isUsed), expired = used.filter((one) => one.ends < now).length, ending = used.filter((one) => one.ends >= now && one.ends < now + 7 * DAY).length;
  const more = [expired && `${number(expired)} expired`, ending && `${number(ending)} ${ending === 1 ? "ends" : "end"} within a week`].filter(Boolean).join(", ");
  return tile(to("certificates"), number(certificates.length), certificates.length === 1 ? "certificate" : "certificates", "", more || "valid for 7 days", expired ? "bad" : ending ? "warn" : "");
}

// The name of a change: its first object, and the number of the others. Pods and EndpointSlices count as objects.
export function changeName(change) {
  const [first] = change.objects, rest = change.total + change.endpoints - 1;
  return first ? `${first.kind} ${nameOf(first)}${rest > 0 ? ` and ${number(rest)} more` : ""}` : count(rest + 1, "object");
}
