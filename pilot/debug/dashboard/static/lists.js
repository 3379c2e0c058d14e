// Lists: problems, proxies, changes and certificates.
import { ago, bytes, clock, command, count, duration, fold, h, link, list, mark, nameOf, number, objectLink, section, serviceLink, span, table, to, toObject, toProxy, zone } from "./dom.js";
import { changeName, isUsed, listed, proxyName, rejecting, silent, STATE, STATE_TEXT, stateText, unhealthyItem } from "./answer.js";

const MOST = 100, RECENT = 8, MOST_CAUSES = 16, NAMED = 3, MANY = 100, DAY = 86400;
export const LEVEL = { error: "bad", warning: "warn", info: "note" };

export const problemLink = (problem) => (problem.kind ? link(toObject({ ...problem, group: problem.group || "", namespace: problem.namespace || "" }, problem.path || ""), `${problem.kind} ${nameOf(problem)}`) : h("b", {}, problem.file || "file"));

export function problemItem(problem) {
  return h(
    "li", { title: problem.code }, mark(LEVEL[problem.severity] || "note", problem.severity === "info" ? "note" : problem.severity), " ", problemLink(problem), problem.path ? [" ", h("code", {}, problem.path)] : null,
    h("p", {}, problem.message), problem.file ? h("p", { class: "soft" }, `${problem.file}${problem.line ? `:${problem.line}` : ""}`) : null,
  );
}

const filterLinks = (label, name, options, query, base) => h(
  "div", { class: "filters", role: "group", "aria-label": label },
  options.map(([value, text]) => {
    const next = new URLSearchParams(query), on = (query.get(name) || "") === value;
    if (value) next.set(name, value); else next.delete(name);
    return h("a", { href: `${base}?${next}`, "aria-current": on ? "true" : null }, text);
  }),
);

export function drawProblems(state, query) {
  const { counts, items } = state.problems, severity = query.get("severity") || "", namespace = query.get("namespace") || "", about = query.get("about") || "", code = query.get("code") || "";
  const matching = items.filter((one) => (!severity || one.severity === severity) && (!namespace || one.namespace === namespace) && (!about || nameOf(one) === about) && (!code || one.code === code));
  const options = [["", `all ${count(counts.errors + counts.warnings + (counts.infos || 0), "problem")}`], ["error", count(counts.errors, "error")], ["warning", count(counts.warnings, "warning")], ["info", count(counts.infos || 0, "note")]];
  return [
    h("h2", {}, "Problems"), filterLinks("Severity", "severity", options, query, to("problems")),
    namespace ? h("p", {}, `In namespace ${namespace}. `, link(to("problems"), "Show all")) : null,
    code ? h("p", {}, "Only those of the kind ", h("code", {}, code), ". ", link(to("problems"), "Show all")) : null,
    matching.length ? list(matching.slice(0, MOST), problemItem) : h("p", { class: "none" }, items.length ? "No problem of this sort." : "There are no problems."),
    matching.length > MOST ? h("p", {}, `${number(matching.length - MOST)} more: choose a severity, or see `, link("/debug/problemz?pretty", "all as JSON"), ".") : null,
    h("p", { class: "soft" }, "CLI:"), command(`pilotctl problems${namespace ? ` -n ${namespace}` : ""}`),
  ];
}

export function drawProxies(answer, query, now, go) {
  const { total, proxies } = answer, state = query.get("state") || "", text = query.get("text") || "", namespace = query.get("namespace") || "";
  const input = h("input", { id: "proxy-filter", type: "search", value: text, placeholder: "name, namespace, type or version", "aria-label": "Filter proxies", oninput: (event) => {
    const next = new URLSearchParams(query);
    if (event.target.value) next.set("text", event.target.value); else next.delete("text");
    go(`${to("proxies")}?${next}`);
  } });
  const rows = proxies.map((row) => [
    link(toProxy(row.id), proxyName(row)), mark(STATE[row.state], stateText(row)),
    row.kind, row.version, `${span(now - row.since)}`,
  ]);
  return [
    h("h2", {}, namespace ? `Proxies in ${namespace}` : "Proxies"), input,
    filterLinks("State", "state", [["", "all"], ...Object.entries(STATE_TEXT)], query, to("proxies")),
    rows.length ? table(["proxy", "state", "type", "version", "connected for"], rows) : h("p", { class: "none" }, text || state || namespace ? "No proxy matches." : "No proxy is connected."),
    total > rows.length ? h("p", {}, `${number(total - rows.length)} more: filter by name.`) : null,
    h("p", { class: "soft" }, "CLI:"), command("pilotctl proxy-status"),
  ];
}

// How far a change has been delivered: a bar and numbers, and which proxies lack it. The tooltip has the times and the costs.
export function delivery(change, { unhealthy }) {
  const total = change.proxies - (change.unchanged || 0);
  if (!total) return h("span", { class: "delivery soft", title: cost(change) }, "affected no proxy");
  const earlier = unhealthy.filter((row) => row.state === "refused" && row.error_since < change.time); // they rejected an earlier change too
  const refused = change.refused || 0, before = Math.min(refused, earlier.length), own = refused - before, isSilent = (change.seconds || 0) > 10;
  const causes = [...new Map(earlier.flatMap((row) => row.causes.slice(0, 1)).map((ref) => [toObject(ref), ref])).values()];
  const done = change.acknowledged || 0, gone = change.gone || 0, pending = change.done ? 0 : total - done - refused - gone;
  const share = (level, n) => (n > 0 ? h("i", { class: level, style: { flexGrow: String(n) } }) : null);
  const bar = h("span", { class: "bar", role: "img", "aria-label": `${done} of the ${total} proxies that it affected have it` }, share("ok", done), share("bad", refused), share(isSilent ? "warn" : "busy", pending), share("", gone));
  const late = [own && h("span", { class: "bad" }, `${rejecting(own)} it`), before && [h("span", { class: "bad" }, `${rejecting(before)} it`), " because of ", causes.length ? listed(causes.map((ref) => objectLink(ref))) : "an earlier change"],
    pending > 0 && (isSilent ? link(`${to("proxies")}?state=stale`, silent(pending)) : `${count(pending, "proxy is", "proxies are")} ${STATE_TEXT.waiting}`), gone && `${count(gone, "proxy", "proxies")} disconnected`, !change.done && `for ${span(change.seconds || 0)}`].filter(Boolean);
  return [h("span", { class: "delivery", title: cost(change) }, bar, `${number(done)}/${number(total)}`), late.length ? h("span", { class: "late" }, late.map((part, index) => [index ? (part === late[late.length - 1] && !change.done ? " " : ", ") : "", part])) : null];
}

// What a change made the control plane compute and send, and how long that took.
function cost(change) {
  const sent = Object.values(change.bytes || {}).reduce((sum, size) => sum + size, 0);
  return [
    change.p99 && `99 % of the proxies had it after ${duration(change.p99)}`, change.done && change.seconds && `all after ${duration(change.seconds)}`,
    change.derivations && `${number(change.derivations)} values were computed`, sent && `${bytes(sent)} were sent`,
  ].filter(Boolean).join(", ");
}

const ACTION = { add: "added", update: "changed", delete: "deleted", change: "changed" };

const errorOfObject = (one, problems) => problems.find((problem) => problem.severity === "error" && problem.kind === one.kind && nameOf(problem) === nameOf(one));

// The error of an object that changed, which links to the field.
function errorMark(one, problems) {
  const problem = errorOfObject(one, problems);
  return problem ? [" ", h("a", { class: "mark bad", href: toObject(one, problem.path || ""), title: problem.message }, "has an error")] : null;
}

// The fields of an object that changed, with their old and new values. Values of Secrets are not sent.
const value = (text) => (text ? h("code", {}, text) : "not set");
const ENDPOINT = /^endpoints\[(.+?)\](\.conditions\.ready)?$/;
const isEndpoint = ({ path }) => ENDPOINT.test(path);
export const fieldChange = (field) => (isEndpoint(field) ? endpointChange(field) : setting(field));
const setting = ({ path, old, new: next }) => [h("code", {}, path), old || next ? [": ", value(old), " → ", value(next)] : " changed"];
// An endpoint of an EndpointSlice that was added or removed. An endpoint that is absent has no readiness.
const endpointChange = ({ path, old, new: next }) => ["endpoint ", h("code", {}, path.match(ENDPOINT)[1]), " ", next === "absent" ? "removed" : old === "absent" ? `added${next === "ready" ? "" : `, ${next}`}` : next === "false" ? "is not ready any more" : "has become ready"];
const moreFields = (fields) => (fields.every(isEndpoint) ? `; ${moreEndpoints(fields)}` : ` and ${count(fields.length, "more field")}`);
// The numbers of further endpoints that were removed, were added, or changed their readiness.
function moreEndpoints(fields) {
  const removed = fields.filter((field) => field.new === "absent").length, added = fields.filter((field) => field.old === "absent").length, others = fields.length - removed - added;
  return [removed && `${count(removed, "endpoint")} removed`, added && `${count(added, "endpoint")} added`, others && `${count(others, "endpoint")} changed`].filter(Boolean).join(", ");
}
const gistOf = (one, gists) => (one.action === "add" ? gists[`${one.kind} ${nameOf(one)}`] || "" : "");
const fieldsOf = (one) => (one.fields?.length ? h("ul", { class: "fields" }, one.fields.map((field) => h("li", {}, fieldChange(field)))) : null);

const changed = (one, problems) => [`${ACTION[one.action]} `, one.kind === "MeshConfig" ? h("b", {}, `${one.kind} ${one.name}`) : objectLink(one), errorMark(one, problems)];
const origin = (one) => [one.source ? h("span", { class: "soft" }, ` from ${one.source.startsWith("/") ? one.source.split("/").slice(-2).join("/") : one.source}`) : null, one.manager ? h("span", { class: "soft" }, ` by ${one.manager}`) : null];
const when = (change) => h("span", {}, h("time", {}, clock(change.time, true)), h("span", { class: "soft age", "data-time": change.time }, ago(change.time)));

export function changeItem(change, { problems: { items }, fleet, gists }) {
  const objects = change.objects.map((one) => h("li", {}, changed(one, items), gistOf(one, gists) ? `: ${gistOf(one, gists)}` : "", origin(one), fieldsOf(one)));
  const more = change.total + change.endpoints - objects.length;
  const list = h("ul", {}, objects, more > 0 ? h("li", { class: "soft" }, `and ${count(more, "more object")}`) : null);
  return h("li", { class: "change" }, h("div", { class: "line" }, when(change), h("span", { class: "rollout" }, delivery(change, fleet))), objects.length > 3 ? fold(`change ${change.number}`, changeName(change), false, list) : list);
}

// The changes that are the last of an object which has an error or is named in a sentence about the mesh.
function causesIn({ changes, findings }) {
  const named = new Set(findings.flatMap(({ parts }) => parts.map((part) => (part.href || "").split("?")[0])));
  return changes.filter((change) => change.errors.length || change.objects.map((one) => toObject(one)).filter((href) => named.delete(href)).length);
}

// The last changes above the graph, in one line each. Those that cause what is wrong now are always among them.
export function recentChanges(state) {
  const { changes } = state, causes = new Set(causesIn(state).slice(0, MOST_CAUSES)), others = Math.max(0, RECENT - causes.size);
  const first = new Set(changes.filter((change) => !causes.has(change)).slice(0, others)), shown = changes.filter((change) => causes.has(change) || first.has(change)), rest = changes.length - shown.length;
  return [
    h("h2", {}, link(to("changes"), "What changed"), rest ? h("small", {}, link(to("changes"), `${count(rest, "more change")}`)) : null),
    changes.length ? list(shown, (change) => h("li", {}, h("time", {}, clock(change.time, true)), h("span", { class: "what" }, brief(change, state)), delivery(change, state.fleet)), "recent") : h("p", { class: "none" }, "Nothing has changed since the control plane started."),
  ];
}

// The first objects of a change, those with errors first, and the number of the others.
function brief(change, { problems: { items }, gists }) {
  const total = change.total + change.endpoints;
  if (total > MANY) return count(total, "object");
  const first = [...change.objects].sort((a, b) => Boolean(errorOfObject(b, items)) - Boolean(errorOfObject(a, items))).slice(0, NAMED), rest = total - first.length;
  const fields = change.objects.flatMap((one) => one.fields || []), gist = first.map((one) => gistOf(one, gists)).find(Boolean);
  return [
    first.map((one, index) => [index ? ", " : "", changed(one, items)]), gist ? h("span", { class: "soft" }, `: ${gist}`) : null,
    fields.length ? h("span", { class: "soft field" }, " ", fieldChange(fields[0]), fields.length > 1 ? moreFields(fields.slice(1)) : "") : null, rest > 0 ? h("span", { class: "soft" }, ` and ${count(rest, "more object")}`) : null,
  ];
}

export function drawChanges(state, query) {
  const name = query.get("about") || "", matching = name ? state.changes.filter((change) => change.objects.some((one) => nameOf(one) === name)) : state.changes;
  return [
    h("h2", {}, "What changed"), name ? h("p", {}, `Changes of ${name}. `, link(to("changes"), "Show all")) : h("p", { class: "soft" }, `The last changes of the configuration, newest first. 247/250 means: it affected 250 proxies when it was made, and 247 of them have it. Proxies that were rejecting another object when the change was made are named with that object. “Not responding” means that they have not acknowledged a response for more than ten seconds, “disconnected” that they closed their connection before they acknowledged the change. The page of an object counts the proxies that it affects now. All times are those of this browser (${zone()}).`),
    matching.length ? list(matching.slice(0, MOST), (change) => changeItem(change, state)) : h("p", { class: "none" }, "Nothing has changed since the control plane started."),
  ];
}

export function drawCertificates(state, now) {
  const sorted = [...state.certificates].sort((a, b) => a.ends - b.ends);
  const rows = sorted.map((one) => {
    const days = (one.ends - now) / DAY, level = !isUsed(one) ? "note" : days < 0 ? "bad" : days < 7 ? "warn" : "ok";
    const gateways = one.usedBy.map((user) => user.slice("Gateway ".length).split("/")).map(([namespace, name]) => objectLink({ group: "networking.istio.io", kind: "Gateway", namespace, name }));
    const [kind, name] = one.name.startsWith("Secret ") ? ["Secret", one.name.slice(7)] : ["", one.name];
    const [namespace, secret] = name.split("/");
    return [
      kind ? link(toObject({ group: "", kind, namespace, name: secret }), one.name) : one.name,
      mark(level, days < 0 ? `expired ${span(now - one.ends)} ago` : `${span(one.ends - now)} left`), new Date(one.ends * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC", gateways.length ? listed(gateways) : kind ? "no Gateway" : "all workloads",
    ];
  });
  return [h("h2", {}, "Certificates"), h("p", { class: "soft" }, "CA certificates of the mesh, and certificates in Secrets. Those that expire first are on top. An expired certificate that nothing uses is no problem."), rows.length ? table(["certificate", "left", "expires", "used by"], rows) : h("p", { class: "none" }, "The control plane knows no certificates.")];
}

// The panel beside the graph when nothing is chosen: the proxies with problems, and the errors.
export function overview(state) {
  const unhealthy = state.fleet.unhealthy.slice(0, 8), errors = state.problems.items.filter((one) => one.severity === "error").slice(0, 6), warnings = state.problems.items.filter((one) => one.severity === "warning").slice(0, 6 - errors.length);
  return [
    h("h2", { class: "unseen" }, "Overview"), unhealthy.length ? section("Proxies with problems", h("ul", { class: "items" }, unhealthy.map((row) => unhealthyItem(row, row.services.length ? h("p", { class: "soft" }, "serves ", row.services.slice(0, 3).map(([host, namespace], index) => [index ? ", " : "", serviceLink({ host, namespace })])) : null)))) : null,
    errors.length ? section("Errors", h("ul", { class: "items" }, errors.map(problemItem))) : null,
    warnings.length ? section("Warnings", h("ul", { class: "items" }, warnings.map(problemItem))) : null,
    unhealthy.length || errors.length || warnings.length || !state.mesh?.services ? null : h("p", { class: "none" }, "Choose a namespace or a gateway, or search for a service, a proxy or an object."),
  ];
}
