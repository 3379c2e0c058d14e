// One proxy: its state by type, its resources, and the objects that each resource was built from.
import { ask, clock, code, command, count, h, link, mark, nameOf, number, objectLink, section, serviceLink, show, span, table, to, toProxy } from "./dom.js";
import { proxyName, STATE, STATE_TEXT, stateText } from "./answer.js";

const TYPES = [["cds", "clusters", "clusters"], ["lds", "listeners", "listeners"], ["rds", "routes", "routes"], ["eds", "endpoints", "endpoints"], ["sds", "secrets", "secrets"], ["ecds", "extensions", "ecds"]];
const titleOf = (type) => (TYPES.find(([name]) => name === type) || [type, type])[1];

// What a proxy runs that has rejected or not acknowledged a response.
function runs(one) {
  const since = clock(one.error ? one.since : one.sent, true), what = titleOf(one.type);
  const cause = one.causes.length ? [" The rejection is caused by ", one.causes.map((ref, index) => [index ? ", " : "", objectLink(ref)]), "."] : null;
  return h("p", {}, one.acknowledged ? ["It runs the ", h("b", {}, what), ` that it acknowledged last, before ${since}.`] : ["It has acknowledged no ", h("b", {}, what), ` since it connected, so it runs those from before, if any.`], cause);
}

export function drawProxy(answer, type, resource, now) {
  const tabs = h("nav", { class: "filters", "aria-label": "Resources" }, answer.types.map((one) => h("a", { href: toProxy(answer.id, one.type), "aria-current": one.type === type ? "true" : null }, titleOf(one.type), one.error ? " (rejected)" : "")));
  const rows = answer.types.map((one) => [
    link(toProxy(answer.id, one.type), titleOf(one.type)),
    one.error ? mark("bad", `rejected since ${clock(one.since)}`) : one.waits ? mark(now - one.sent > 10 ? "warn" : "busy", `${now - one.sent > 10 ? STATE_TEXT.stale : STATE_TEXT.waiting} for ${span(now - one.sent)}`) : mark("ok", STATE_TEXT.synced),
    one.sent ? `${clock(one.sent, true)}` : "never", one.error ? [code(one.error), one.causes.length ? h("p", {}, "caused by ", one.causes.map((ref, index) => [index ? ", " : "", objectLink(ref)])) : null] : "",
  ]);
  const pod = answer.proxy, late = answer.types.filter((one) => one.error || (one.waits && now - one.sent > 10));
  return [
    h("h2", {}, proxyName(answer)), h("p", {}, mark(STATE[answer.state], stateText(answer))), late.length ? h("div", { class: `verdict${answer.state === "refused" ? "" : " warn"}` }, answer.state === "stale" ? h("p", {}, "Not responding: its connection is open, but it has not acknowledged a response for more than ten seconds.") : null, late.map(runs)) : null,
    h("p", { class: "soft" }, `${answer.kind} ${answer.version} · ${answer.ips.join(", ")} · connected for ${span(now - answer.since)} · `, link(to("namespace", answer.namespace), `namespace ${answer.namespace}`)),
    answer.services.length ? h("p", {}, "Serves ", answer.services.slice(0, 6).map(([host, namespace], index) => [index ? ", " : "", serviceLink({ host, namespace })]), answer.services.length > 6 ? ` and ${answer.services.length - 6} more` : "", ".") : null,
    answer.sidecar ? h("p", {}, `Sees ${count(answer.sidecar.services, "service")}; ${number(answer.sidecar.hidden)} others are hidden by `, objectLink(answer.sidecar.sidecar), ".") : null,
    type ? null : section("State by type", table(["type", "state", "last sent", "message"], rows)),
    section(type ? `Its ${titleOf(type)}` : "Its configuration", tabs, h("div", { id: "resources", "data-own": true }, type ? "Loading …" : null)),
    section("CLI", command(`pilotctl proxy-status ${pod}`), type ? command(`pilotctl proxy-config ${(TYPES.find(([name]) => name === type) || [0, 0, type])[2]} ${pod}`) : null, resource ? command(`pilotctl explain ${pod} '${resource}'`) : null),
  ];
}

export async function drawResources(element, proxy, type, query, go, isCurrent) {
  const text = query.get("text") || "", answer = await ask("resources", { id: proxy, type, text });
  if (!isCurrent()) return;
  const input = h("input", { id: "resource-filter", type: "search", value: text, placeholder: `filter ${titleOf(type)}`, "aria-label": `Filter ${titleOf(type)}`, oninput: (event) => go(`${toProxy(proxy, type)}${event.target.value ? `?text=${encodeURIComponent(event.target.value)}` : ""}`) });
  show(element, input, h("p", { class: "soft" }, answer.total > answer.names.length ? `${number(answer.names.length)} of ${number(answer.total)} are shown.` : count(answer.total, "resource")), answer.names.length ? h("ul", { class: "names" }, answer.names.map((name) => h("li", {}, link(toProxy(proxy, type, name), name)))) : h("p", { class: "none" }, text ? "No match." : "The proxy has none."));
}

export async function drawResource(element, proxy, type, name, isCurrent) {
  const [explained, content] = await Promise.all([
    fetch(`/debug/explain?${new URLSearchParams({ proxyID: proxy, resource: name, type })}`).then((answer) => (answer.ok ? answer.json() : null)).catch(() => null),
    ask("resource", { id: proxy, type, name }).catch((error) => error),
  ]);
  if (!isCurrent()) return;
  if (content instanceof Error) { show(element, h("h3", {}, name), h("p", {}, `${content.message}. `, link(toProxy(proxy, type), `Show all ${titleOf(type)}`))); return; }
  const objects = (explained?.explanations || []).flatMap((one) => one.objects).filter((one) => one.kind !== "Proxy").map((one) => ({ group: "", namespace: "", ...one }));
  const links = [...new Map(objects.map((one) => [`${one.kind} ${nameOf(one)}`, one])).values()];
  show(
    element, h("h3", {}, name), link(toProxy(proxy, type), `all ${titleOf(type)}`),
    h("p", {}, links.length ? ["Built from ", links.slice(0, 30).map((one, index) => [index ? ", " : "", one.kind === "MeshConfig" || !one.name ? `${one.kind} ${nameOf(one)}` : objectLink(one)]), links.length > 30 ? ` and ${links.length - 30} more` : "", "."] : "Its origin is unknown."),
    h("pre", { class: "listing", tabindex: "0", "aria-label": "JSON" }, JSON.stringify(content, null, 2)),
  );
}
