// The state of the mesh in one sentence, and what else is affected.
import { ago, clock, count, h, link, mark, nameOf, number, objectLink, serviceLink, show, span, to, toProxy } from "./dom.js";

const DAY = 86400, MANY = 0.1; // the share of proxies that do not respond from which on this is an error
const TYPES = { cds: "clusters", eds: "endpoints", lds: "listeners", rds: "routes", sds: "secrets", ecds: "extensions", nds: "names" };

export const nameOfProxy = (id) => id.replace(/-\d+$/, ""); // without the number of the connection
export const proxyName = (row) => (row.name.includes(".") ? row.name : `${row.name}.${row.namespace}`);
export const typesOf = (types) => types.map((type) => TYPES[type] || type).join(" and ") || "configuration";

// Kinds in the order in which they cause refusals, most often first.
const SUSPECTS = ["EnvoyFilter", "VirtualService", "HTTPRoute", "Gateway", "DestinationRule"];
const suspicion = (problem) => (SUSPECTS.includes(problem.kind) ? SUSPECTS.indexOf(problem.kind) : SUSPECTS.length);

// Returns the objects that may have caused refusals, without those that changed only after the first refusal.
function causesOf(refused, changes) {
  const since = Math.min(...refused.map((row) => row.error_since || Infinity)), changedAt = new Map();
  for (const change of changes) for (const one of change.objects) {
    const name = `${one.kind} ${nameOf(one)}`;
    changedAt.set(name, Math.min(changedAt.get(name) ?? Infinity, change.time));
  }
  const causes = new Map(refused.flatMap((row) => row.causes).map((one) => [`${one.kind} ${nameOf(one)}`, one]));
  return [...causes].filter(([name]) => !(changedAt.get(name) > since)).map(([, one]) => one).sort((a, b) => suspicion(a) - suspicion(b));
}

// The error of a proxy in Envoy's words, without the name of the type.
export const errorOf = (row) => (row.error_types.length === 1 && row.error.startsWith(`${row.error_types[0]}: `) ? row.error.slice(row.error_types[0].length + 2) : row.error);
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// What rejecting proxies say, and the objects that the rejected resources were built from.
function refusal(refused, total, changes, now) {
  const [first] = refused, causes = causesOf(refused, changes);
  const since = Math.min(...refused.map((row) => row.error_since || now)), when = ` since ${clock(since)} (${span(now - since)})`;
  const types = typesOf([...new Set(refused.flatMap((row) => row.error_types))]);
  const others = total > 1 ? [" and ", link(to("proxies") + "?state=refused", count(total - 1, "other proxy", "other proxies")), ` reject their ${types}`] : ` rejects its ${types}`;
  return [
    first ? link(toProxy(first.id), proxyName(first)) : "A proxy", others, when, first?.error ? [": ", cut(errorOf(first), 200)] : "",
    causes.length ? ["; built from ", listed(causes.map((one) => objectLink(one)), " and ")] : "", ".",
  ];
}

export const ELSEWHERE = new Set(["refused", "no-ready-endpoint"]); // codes of errors that other findings report

// Returns findings: {level, impact, parts}. Those of the worst level are first, and among them those that affect most
// proxies or services. `parts` are texts and links.
export function findings(state, now) {
  const { fleet, problems, certificates, mesh, changes } = state, results = [];
  const refused = fleet.unhealthy.filter((row) => row.state === "refused"), stale = fleet.unhealthy.filter((row) => row.state === "stale");
  const errors = problems.items.filter((problem) => problem.severity === "error" && !ELSEWHERE.has(problem.code));
  const mistakes = problems.counts.errors - problems.items.filter((problem) => ELSEWHERE.has(problem.code)).length;
  if (fleet.refused) {
    results.push({ level: "bad", impact: fleet.refused, parts: refusal(refused, fleet.refused, changes, now) });
  }
  if (mistakes > 0) {
    const first = errors[0];
    const parts = mistakes === 1 && first
      ? [first.kind ? objectLink(first, first.path) : h("b", {}, first.file || "A file"), " has an error", first.path ? [" at ", h("code", {}, first.path)] : "", `: ${first.message}.`]
      : [link(to("problems") + "?severity=error&code=-elsewhere", count(mistakes, "error")), " in configuration objects, the first in ", first?.kind ? objectLink(first, first.path) : first?.file || "a file", first ? `: ${cut(first.message, 160)}.` : "."];
    results.push({ level: "bad", impact: mistakes, parts });
  }
  if (fleet.stale) {
    const first = stale[0];
    const parts = [`${number(fleet.proxies - fleet.stale - fleet.refused)} of ${count(fleet.proxies, "proxy is", "proxies are")} up to date; `];
    if (fleet.stale === 1 && first) parts.push(link(toProxy(first.id), proxyName(first)), ` has not acknowledged its configuration for ${span(now - first.waits_since)}.`);
    else parts.push(link(to("proxies") + "?state=stale", count(fleet.stale, "proxy", "proxies")), ` have not acknowledged theirs${first ? `, the first for ${span(now - first.waits_since)}` : ""}.`);
    results.push({ level: fleet.stale > MANY * fleet.proxies ? "bad" : "warn", impact: fleet.stale, parts });
  }
  const inUse = certificates.filter(isUsed), ended = inUse.filter((one) => one.ends < now), ending = inUse.filter((one) => one.ends >= now && one.ends < now + 7 * DAY);
  if (ended.length) results.push({ level: "bad", impact: ended.length, parts: [certificatesLink(ended), ` expired${ended.length === 1 ? ` ${span(now - ended[0].ends)} ago` : ""}.`] });
  if (ending.length) results.push({ level: "warn", parts: [certificatesLink(ending), ending.length === 1 ? ` expires in ${span(ending[0].ends - now)}.` : ` expire within a week, the first in ${span(Math.min(...ending.map((one) => one.ends)) - now)}.`] });
  results.push(...ofServices(mesh, "unready", "unready_host", "bad", ["has no ready endpoint: requests get 503", "have no ready endpoint"]));
  results.push(...ofServices(mesh, "faults", "faulty_host", "warn", ["has injected faults", "have injected faults"]));
  const current = changes.find((change) => !change.done && change.proxies > (change.acknowledged || 0));
  if (current && !fleet.stale) results.push({ level: "busy", parts: [link(to("changes"), "A change"), ` is being delivered: ${number(current.acknowledged || 0)} of ${number(current.proxies)} proxies have it.`] });
  if (!results.some((one) => one.level === "bad" || one.level === "warn")) results.unshift({ level: fleet.proxies ? "ok" : "note", parts: [calm(state)] });
  return results.sort((a, b) => LEVELS.indexOf(a.level) - LEVELS.indexOf(b.level) || (b.impact || 0) - (a.impact || 0));
}

// What is the matter with services of which the namespaces have a number and the first host.
function ofServices(mesh, field, first, level, [one, many]) {
  const namespaces = (mesh?.namespaces || []).filter((namespace) => namespace[field]), total = namespaces.reduce((sum, namespace) => sum + namespace[field], 0);
  if (!total) return [];
  if (total === 1) return [{ level, impact: 1, parts: [serviceLink({ namespace: namespaces[0].name, host: namespaces[0][first] }), ` in ${namespaces[0].name} ${one}.`] }];
  return [{ level, impact: total, parts: [`${number(total)} services ${many}, in `, listed(namespaces.map((namespace) => link(to("namespace", namespace.name), namespace.name))), "."] }];
}

const LEVELS = ["bad", "warn", "ok", "note", "busy"];

// Returns whether a Gateway or the mesh uses a certificate.
export const isUsed = (certificate) => certificate.usedBy.length > 0 || !certificate.name.startsWith("Secret ");

const certificatesLink = (list) => (list.length === 1 ? ["The certificate of ", link(to("certificates"), list[0].name)] : link(to("certificates"), count(list.length, "certificate")));

function calm({ fleet, mesh }) {
  if (!fleet.proxies) return mesh && !mesh.services ? "There are no services and no proxies yet." : "No proxy is connected.";
  const synced = fleet.synced === fleet.proxies;
  return synced ? `${fleet.proxies === 1 ? "The only proxy is" : `All ${number(fleet.proxies)} proxies are`} up to date, and there are no errors.` : `${number(fleet.synced)} of ${number(fleet.proxies)} proxies are up to date, and there are no errors.`;
}

export function listed(items, last = ", ") {
  const first = items.slice(0, 4), rest = items.length - first.length;
  return [first.map((one, index) => [index ? (index === items.length - 1 ? last : ", ") : "", one]), rest > 0 ? ` and ${rest} more` : ""];
}

// Draws the sentence, and the other findings below it. Beside details (`isBrief`), it is one line.
export function drawAnswer(element, state, now, isBrief) {
  const [first, ...rest] = findings(state, now);
  const more = rest.filter((one) => one.level !== "busy").length;
  element.classList.toggle("brief", isBrief);
  show(element, h("p", { class: `headline ${first.level}` }, mark(first.level, ""), h("span", {}, first.parts)), !rest.length ? null : !isBrief ? h("ul", { class: "also" }, rest.map((one) => h("li", {}, mark(one.level, ""), h("span", {}, one.parts)))) : more ? link("#/", `${more} more`) : null);
  const total = more + (first.level === "ok" || first.level === "note" ? 0 : 1);
  document.title = `${total ? `(${total}) ` : ""}Mesh`;
}

// Draws the tiles, which are links to lists. Beside details, they are one line.
export function drawTiles(element, state, isBrief) {
  const { fleet, problems, mesh, changes, certificates } = state, now = Date.now() / 1000;
  const tile = (href, value, name, level = "", more = "", moreLevel = "") => link(href, h("b", { class: level }, value), h("span", {}, name, more ? h("small", { class: moreLevel }, more) : null));
  const unsynced = fleet.refused + fleet.stale;
  const other = [problems.counts.warnings && count(problems.counts.warnings, "warning"), problems.counts.infos && count(problems.counts.infos, "note")].filter(Boolean).join(", ");
  element.classList.toggle("brief", isBrief);
  show(
    element, tile("#/", mesh ? number(mesh.services) : "…", mesh?.services === 1 ? "service" : "services", "", mesh ? `in ${count(mesh.namespaces.length, "namespace")}` : ""),
    tile(to("proxies"), number(fleet.proxies), fleet.proxies === 1 ? "proxy" : "proxies", "", unsynced ? `${number(unsynced)} not up to date` : fleet.waiting ? `${number(fleet.waiting)} being updated` : fleet.proxies ? "up to date" : "none connected", fleet.refused ? "bad" : fleet.stale ? "warn" : ""),
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

export function changeName(change) {
  const [first] = change.objects;
  const rest = change.total - 1 + (change.endpoints ? 1 : 0);
  if (!first) return count(change.endpoints, "endpoint");
  return `${first.kind} ${nameOf(first)}${rest > 0 ? ` and ${rest} more` : ""}`;
}
