// One service: why requests fail, who may call it, routes, rules, endpoints and what changed. And one namespace, one line.
import { ask, clock, command, compare, count, fold, h, link, mark, nameOf, number, objectLink, section, serviceLink, shortHost, show, table, to, toObject, toProxy } from "./dom.js";
import { changeItem, LEVEL, problemItem } from "./lists.js";
import { levelOf, nameOfPlace, rateText, wordsOf } from "./graph.js";
import { listed, nameOfProxy, unhealthyItem } from "./answer.js";

const MOST = 100; // services that are listed
const NOT_CONNECTED = "the endpoint is in the mesh, but its proxy has no connection to this replica of the control plane.";
const PLAIN_TEXT = { STRICT: "Plain-text requests are rejected", PERMISSIVE: "Plain-text requests are accepted", DISABLE: "Requests must use plain text" };

export function drawService(service, state) {
  const { host, namespace } = service, name = shortHost(host, namespace);
  const traffic = state.traffic?.nodes?.[`service ${namespace}/${host}`];
  const related = new Set([nameOf(service.source), ...service.routes.map((one) => nameOf(one.object)), ...service.rules.map((one) => nameOf(one.object)), ...service.policies.map((one) => nameOf(one.object)), ...service.mtlsBy.map(nameOf), ...service.slices]);
  const changes = state.changes.filter((change) => change.objects.some((one) => (related.has(nameOf(one)) || names(one, host)) && change.total < 1000)).slice(0, 5);
  return [
    h("h2", {}, name), h("p", { class: "soft" }, `${host} · ports ${service.ports.map((port) => `${port.number} ${port.protocol}`).join(", ") || "none"} · `, link(to("namespace", namespace), `namespace ${namespace}`), " · ", objectLink(service.source)),
    ownProxies(service, state), verdict(service, state, traffic), traffic ? h("p", {}, h("b", {}, "Traffic: "), rateText(traffic)) : null,
    hidden(service, state), callers(service, state),
    section("Routes", service.routes.length ? service.routes.map(route) : h("p", {}, "No VirtualService or HTTPRoute applies to it: requests go to its endpoints.")),
    service.rules.length ? section("Destination rules", service.rules.map(rule)) : null,
    section(`Endpoints: ${service.total < 0 ? "none by design" : `${service.ready} of ${service.total} ready`}`, endpoints(service)),
    service.accounts.length ? section("Certificates", h("p", {}, "Its workloads identify themselves as ", service.accounts.map((account, index) => [index ? ", " : "", h("code", {}, `${namespace}/sa/${account}`)]), ". ", link(to("certificates"), "CA certificates"))) : null,
    changes.length ? section("What changed", h("ul", { class: "items" }, changes.map((change) => changeItem(change, state)))) : null,
    section("CLI", command(`pilotctl describe svc/${host.endsWith(".svc.cluster.local") ? host.split(".")[0] : host}.${namespace}`), service.problems.length || service.reasons.length ? command(`pilotctl problems -n ${namespace}`) : null, service.endpoints.find((one) => one.proxy) ? command(`pilotctl proxy-config clusters ${podOf(service)} --fqdn ${host}`) : null),
  ];
}

// Whether a field that changed has named a host, or names it now.
const names = ({ fields = [] }, host) => fields.some(({ old, new: next }) => `${old} ${next}`.split(/[^\w.*-]+/).includes(host));

const podOf = (service) => nameOfProxy(service.endpoints.find((one) => one.proxy).proxy);

// Its proxies that reject resources or are not responding.
const unhealthyOf = ({ host, namespace }, { fleet }) => fleet.unhealthy.filter((row) => row.services.some(([other, place]) => other === host && place === namespace));

function ownProxies(service, state) {
  const rows = unhealthyOf(service, state);
  return rows.length ? h("div", { class: `verdict${rows.some((row) => row.state === "refused") ? "" : " warn"}` }, h("h3", {}, "Its proxies with problems"), h("ul", { class: "items" }, rows.slice(0, 5).map((row) => unhealthyItem(row)), rows.length > 5 ? h("li", { class: "soft" }, `and ${number(rows.length - 5)} more`) : null)) : null;
}

function verdict(service, state, traffic) {
  const failing = traffic && traffic.errors > 0.01 * traffic.rate ? [{ severity: "error", text: `${((100 * traffic.errors) / traffic.rate).toFixed(1)} % of its requests fail with a status of 5xx.` }] : [];
  const own = unhealthyOf(service, state), reasons = [...failing, ...service.reasons.filter((one) => !one.own || !own.length)], problems = service.problems.filter((one) => one.severity !== "info");
  if (!reasons.length && !problems.length) return own.length ? null : h("p", { class: "verdict ok" }, mark("ok", "No problems found."));
  const levels = [...reasons, ...problems].map((one) => LEVEL[one.severity]), level = levels.includes("bad") ? "" : levels.includes("warn") ? "warn" : "note";
  return h("div", { class: `verdict ${level}` }, reasons.length ? [h("h3", {}, "Why requests may fail"), h("ul", { class: "items" }, reasons.map((one) => h("li", {}, mark(LEVEL[one.severity], one.severity), " ", one.text, one.object ? [" ", objectLink(one.object, (one.text.match(/^spec\.\S+/) || [""])[0])] : null)))] : null, problems.length ? [h("h3", {}, "Problems in related objects"), h("ul", { class: "items" }, problems.slice(0, 10).map(problemItem))] : null);
}

function callers(service, state) {
  const rules = service.policies.map(policy), named = service.callers.filter((one) => one.namespace), [everybody] = service.callers.filter((one) => !one.namespace);
  const everyone = service.mtls === "STRICT" ? "every workload of the mesh" : "everybody, inside and outside of the mesh";
  const only = everybody?.requests.length ? [": ", texts(everybody.requests)] : "", ends = !service.policies.length ? ": no policy applies to it." : ".";
  const text = service.access === "closed" ? [h("b", {}, "Nobody"), " may call it."]
    : service.access === "open" || everybody ? ["May be called by ", h("b", {}, everyone), only, everybody ? except(everybody) : "", everybody && named.length ? "; and by:" : ends]
      : named.length === 1 ? ["May be called by ", caller(named[0]), "."] : named.length ? "May be called by:" : "May be called if a rule matches:";
  return section(
    "Who may call it", h("p", {}, text), service.access === "restricted" && named.length > (everybody ? 0 : 1) ? h("ul", {}, named.map((one) => h("li", {}, caller(one)))) : null,
    plainText(service), rules.length ? fold("policies", count(rules.length, "policy", "policies"), rules.length < 4, rules) : null, tryCall(service, state),
  );
}

const requestsOf = ({ text }) => text === "every request" ? text : h("code", {}, text);
const texts = (requests) => requests.map((one, index) => [index ? ", " : "", requestsOf(one)]);
const policiesOf = (requests) => [...new Map(requests.map((one) => [nameOf(one.by), one.by])).values()].map((by, index) => [index ? ", " : "", objectLink(by)]);

// The requests that DENY policies deny.
const except = (one) => (one.exceptions.length ? [", except ", texts(one.exceptions), " (", policiesOf(one.exceptions), ")"] : "");

// A caller with the requests that it may make, and the policies that say so.
function caller(one) {
  const isLimited = one.requests.some(({ text }) => text !== "every request");
  return [h("b", {}, one.account || "every workload"), " in ", link(to("namespace", one.namespace), one.namespace), isLimited ? [": ", texts(one.requests)] : "", " (", policiesOf(one.requests), ")", except(one)];
}

// The Sidecars that hide the service, since they last changed, in a line each.
function hidden(service, { changes }) {
  const items = service.hiddenBy.map((one) => {
    const last = changes.find((change) => change.objects.some((object) => object.kind === "Sidecar" && nameOf(object) === nameOf(one.sidecar)));
    return h("p", { class: "soft" }, mark("note", "Hidden"), " from ", count(one.proxies, "proxy", "proxies"), " in ", link(to("namespace", one.namespace), one.namespace), " by ", objectLink(one.sidecar), last ? ` since ${clock(last.time, true)}` : "", ".");
  });
  return items.length > 3 ? [items.slice(0, 2), fold("hidden", `and by ${count(items.length - 2, "more Sidecar")}`, false, items.slice(2))] : items;
}

// What happens to requests in plain text, and which objects decide that.
function plainText(service) {
  if (!PLAIN_TEXT[service.mtls]) return null;
  const by = service.mtlsBy[service.mtlsBy.length - 1], isOpen = service.mtls !== "STRICT", needed = isOpen ? service.identityBy : [];
  const isDeny = (ref) => service.policies.some((one) => nameOf(one.object) === nameOf(ref) && one.action === "DENY");
  const mode = [`mutual TLS is ${service.mtls}`, by ? [" because of ", objectLink(by)] : " by default"];
  if (!needed.length) return h("p", {}, h("b", {}, PLAIN_TEXT[service.mtls]), ": ", mode, ".", withoutSidecar(service));
  const policies = [listed(needed.map((one) => objectLink(one)), " and "), " ", needed.every(isDeny) ? ["den", needed.length === 1 ? "ies" : "y", " requests without an identity"] : [needed.length === 1 ? "requires" : "require", " an identity"]];
  return h("p", {}, h("b", {}, "Plain-text requests get 403"), ": ", mode, ", but ", policies, ".", withoutSidecar(service));
}

// Nobody enforces the mode of endpoints outside of the mesh.
function withoutSidecar({ endpoints }) {
  if (!endpoints.length || endpoints.some((one) => one.proxy)) return "";
  return ` No sidecar of it is connected${endpoints.some((one) => one.inMesh) ? "" : ", and its endpoints are outside of the mesh: nothing enforces this"}.`;
}

function policy(one) {
  const rules = one.rules.map((rule, index) => h("li", {}, h("span", { class: "soft" }, `rule ${index}: `), [rule.from.length ? `from ${rule.from.join(" or ")}` : "from anybody", rule.to.length ? `to ${rule.to.join(" or ")}` : "", rule.when.length ? `when ${rule.when.join(" and ")}` : ""].filter(Boolean).join(", ")));
  return h("div", { class: "policy" }, h("b", {}, one.action), " ", objectLink(one.object), one.dryRun ? " (dry run: not enforced)" : "", h("ul", {}, rules.length ? rules : h("li", {}, "no rules: it matches nothing")));
}

// The reason for a decision, in which the policies are links.
function reasonOf({ why, policies }) {
  const byName = new Map(policies.map((one) => [`AuthorizationPolicy ${nameOf(one)}`, { group: "security.istio.io", kind: "AuthorizationPolicy", ...one }]));
  return why.split(/(AuthorizationPolicy [^\s,;]+)/).map((part) => (byName.has(part) ? objectLink(byName.get(part)) : part));
}

const exampleCaller = ({ callers, namespace, accounts }) => { const known = callers.find((one) => one.namespace && one.account); return known ? `${known.namespace}/${known.account}` : `${namespace}/${accounts[0] || "default"}`; };

// A form that evaluates a request with the policies of a connected proxy of the service.
function tryCall(service) {
  const endpoint = service.endpoints.find((one) => one.proxy);
  if (!endpoint) return h("p", { class: "soft" }, "No proxy of the service is connected, so a request cannot be tried.");
  const field = (id, label, value, more = {}) => h("label", {}, label, h("input", { id: `try-${id}`, value, autocomplete: "off", ...more }));
  const offer = async ({ currentTarget }) => { const list = currentTarget.form.querySelector("datalist"); if (!list.children.length) list.append(...(await ask("accounts")).map((name) => h("option", { value: name }))); };
  const form = h("form", { class: "try", onsubmit: async (event) => {
    event.preventDefault();
    const form = event.currentTarget, result = form.parentElement.querySelector("[role=status]");
    const value = (id) => form.querySelector(`#try-${id}`).value.trim();
    const account = value("account"), [namespace, name] = account.includes("/") ? account.split("/") : [service.namespace, account];
    const request = { method: value("method") || "GET", path: value("path") || "/", port: endpoint.port, principal: account ? `cluster.local/ns/${namespace}/sa/${name}` : "" };
    const mine = form.asked = (form.asked || 0) + 1; // only the answer to the last request is shown
    show(result, "Loading …");
    const answer = await fetch(`/debug/authz?${new URLSearchParams({ proxyID: endpoint.proxy, request: JSON.stringify(request) })}`).catch(() => null);
    const decision = answer?.ok ? await answer.json() : null, problem = answer && !answer.ok ? await answer.text() : "The control plane is not responding.";
    if (mine === form.asked) show(result, decision ? [mark(decision.decision === "denied" ? "bad" : "ok", decision.decision === "denied" ? "denied" : decision.decision), " ", reasonOf(decision), ". ", h("span", { class: "soft" }, `These are the policies of ${decision.proxy}.`)] : mark("warn", problem));
    result.scrollIntoView({ block: "nearest" });
  } }, field("account", "Caller, or empty for plain text", "", { placeholder: `for example ${exampleCaller(service)}`, list: "try-accounts", onfocus: offer }), h("datalist", { id: "try-accounts", "data-own": true }), field("method", "Method", "GET"), field("path", "Path", "/"), h("button", {}, "Check access"));
  return fold(`try ${service.namespace}/${service.host}`, "Check access: evaluate a request (none is sent)", false, form, h("p", { role: "status", "data-own": true }));
}

function route(one) {
  const rules = one.rules.map((rule) => h(
    "li", {}, link(toObject(one.object, rule.path), rule.path), h("span", { class: "soft" }, ` ${rule.match.join(" or ") || "every request"}`),
    rule.action ? h("p", {}, rule.action) : null,
    rule.to.length ? h("ul", {}, rule.to.map((to) => h("li", {}, rule.to.length > 1 ? `${to.weight}% ` : "", to.namespace ? serviceLink(to) : h("b", {}, to.host), to.subset ? `, subset ${to.subset}` : "", " ", to.fault ? mark("bad", to.fault) : to.total >= 0 && to.total !== undefined ? mark("ok", `${to.ready}/${to.total}`) : null))) : null,
  ));
  const place = one.gateways.filter((name) => name !== "mesh");
  return h("div", { class: "route" }, objectLink(one.object), h("span", { class: "soft" }, ` hosts ${one.hosts.join(", ")}${place.length ? ` at gateway ${place.join(", ")}` : ""}${one.applies ? "" : " · routes to it"}`), h("ul", {}, rules));
}

function rule(one) {
  return h("div", { class: "route" }, objectLink(one.object), one.tls ? h("span", { class: "soft" }, ` tls ${one.tls}`) : null, h("ul", {}, one.subsets.map((subset) => h("li", {}, `subset ${subset.name} `, h("span", { class: "soft" }, Object.entries(subset.labels).map(([key, value]) => `${key}=${value}`).join(", ")), " ", mark(subset.ready ? "ok" : "bad", `${subset.ready}/${subset.total} ready`)))));
}

function endpoints(service) {
  if (!service.endpoints.length) return h("p", { class: "none" }, service.total < 0 ? "Requests go to the address that clients choose." : "It has no endpoints.");
  const local = service.endpoints.some((one) => one.locality), heads = ["endpoint", "state", "proxy", "version", ...(local ? ["locality"] : [])];
  const rows = [...service.endpoints].sort((a, b) => a.ready - b.ready).map((one) => [`${one.address}:${one.port}`, mark(one.ready ? "ok" : "bad", one.state), one.proxy ? link(toProxy(one.proxy), nameOfProxy(one.proxy)) : one.inMesh ? h("span", { title: NOT_CONNECTED }, "not connected") : "no proxy", one.version, ...(local ? [one.locality] : [])]);
  return [table(heads, rows), service.endpoints.some((one) => one.inMesh && !one.proxy) ? h("p", { class: "soft" }, `Not connected: ${NOT_CONNECTED}`) : null, service.total > rows.length ? h("p", {}, `${number(service.total - rows.length)} more.`) : null];
}

// A namespace: its health, services, and what calls in and out.
export function drawNamespace(name, state) {
  const namespace = state.mesh.namespaces.find((one) => one.name === name);
  if (!namespace) return [h("h2", {}, name), h("p", { class: "none" }, "There is no service in this namespace."), h("p", {}, link(`${to("proxies")}?namespace=${encodeURIComponent(name)}`, "its proxies"), " · ", link(`${to("problems")}?namespace=${encodeURIComponent(name)}`, "problems"))];
  const services = [...namespace.services].sort((a, b) => rank(a) - rank(b) || compare(a.host, b.host));
  const unhealthy = state.fleet.unhealthy.filter((row) => row.namespace === name), problems = state.problems.items.filter((one) => one.namespace === name && one.severity !== "info").slice(0, 8);
  const changes = state.changes.filter((change) => change.total < 1000 && change.objects.some((one) => one.namespace === name)).slice(0, 3);
  return [
    h("h2", {}, `Namespace ${name}`), h("p", {}, mark(levelOf(namespace), wordsOf(namespace))),
    h("p", {}, link(`${to("proxies")}?namespace=${encodeURIComponent(name)}`, count(namespace.proxies, "proxy", "proxies")), " · ", link(`${to("problems")}?namespace=${encodeURIComponent(name)}`, "problems"), " · ", link("#/", "all namespaces")),
    unhealthy.length ? section("Proxies with problems", h("ul", { class: "items" }, unhealthy.slice(0, 8).map((row) => unhealthyItem(row)))) : null,
    problems.length ? section("Problems", h("ul", { class: "items" }, problems.map(problemItem))) : null,
    section(count(services.length, "service"), h("ul", { class: services.some((one) => shortHost(one.host, name).length > 20) ? "services long" : "services" }, services.slice(0, MOST).map((one) => h("li", {}, serviceLink(one), h("span", { class: "soft" }, one.total < 0 ? "" : ` ${one.ready}/${one.total}`), levelOf(one) === "ok" ? null : [" ", mark(levelOf(one), wordsOf(one))]))), services.length > MOST ? h("p", { class: "soft" }, `${number(services.length - MOST)} more: search for one.`) : null),
    changes.length ? section("What changed", h("ul", { class: "items" }, changes.map((change) => changeItem(change, state)))) : null,
  ];
}

const rank = (one) => ({ bad: 0, warn: 1, ok: 2 }[levelOf(one)]);

// A line of the graph: the objects that it stands for.
export function drawEdge(from, target, state) {
  const edge = state.mesh.links.find((one) => one.from === from && one.to === target), flow = state.traffic?.edges?.find((one) => one.from === from && one.to === target);
  const place = (name) => { const [kind] = name.split(" "); return kind === "service" ? serviceLink({ namespace: name.slice(8).split("/")[0], host: name.slice(name.indexOf("/") + 1) }) : kind === "namespace" ? link(to("namespace", name.slice(10)), name) : link(toObject({ group: "networking.istio.io", kind: "Gateway", namespace: name.slice(8).split("/")[0], name: name.slice(name.indexOf("/") + 1) }), name); };
  return [
    h("h2", {}, `${nameOfPlace(from)} → ${nameOfPlace(target)}`), h("p", {}, "From ", place(from), " to ", place(target), "."), flow ? h("p", {}, h("b", {}, "Traffic: "), rateText(flow)) : null,
    edge ? section("Because of", h("ul", { class: "items" }, edge.by.map((ref) => h("li", {}, objectLink(ref), h("span", { class: "soft" }, ref.kind === "AuthorizationPolicy" ? " admits the caller" : " routes requests there")))), edge.count > edge.by.length ? h("p", {}, `${number(edge.count)} rules in all.`) : null) : h("p", { class: "none" }, flow ? "No route or policy names it: it is seen in the traffic." : "There is no such line any more."),
  ];
}
