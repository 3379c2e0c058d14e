// One object as YAML, with the lines of its problems marked.
import { clock, command, count, fold, h, link, mark, nameOf, number, objectLink, section, span, to, toProxy, toService } from "./dom.js";
import { listed, unhealthyItem } from "./answer.js";
import { changeItem, LEVEL, problemItem } from "./lists.js";

const LONGEST = 3000; // lines

// Returns the lines of a value as YAML, each with the path of the field that it shows.
export function yamlLines(value, path = "", indent = "") {
  const lines = [];
  if (Array.isArray(value)) {
    value.forEach((item, index) => {
      const inner = isNested(item) ? yamlLines(item, `${path}[${index}]`, `${indent}  `) : [];
      if (inner.length) { inner[0].items = [...(inner[0].items || []), `${path}[${index}]`]; inner[0].text = `${indent}- ${inner[0].text.slice(indent.length + 2)}`; lines.push(...inner); } else lines.push({ text: `${indent}- ${scalar(item)}`, path: `${path}[${index}]` });
    });
  } else {
    for (const [key, item] of Object.entries(value)) {
      const below = path ? `${path}.${key}` : key;
      if (isNested(item)) lines.push({ text: `${indent}${scalar(key)}:`, path: below }, ...yamlLines(item, below, Array.isArray(item) ? indent : `${indent}  `));
      else lines.push({ text: `${indent}${scalar(key)}: ${scalar(item)}`, path: below, value: item });
    }
  }
  return lines;
}

const isNested = (value) => value !== null && typeof value === "object" && Object.keys(value).length > 0;

function scalar(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  const plain = /^[A-Za-z_/][\w./@%+-]*( [\w./@%+-]+)*$/.test(value) && !/^(true|false|null|yes|no|on|off|y|n)$/i.test(value);
  return plain ? value : JSON.stringify(value);
}

// The line that a path belongs to: its own, or that of the nearest field above it.
function lineOf(lines, path) {
  for (let text = path; text; text = text.replace(/(\.[^.[\]]+|\[[^\]]*\])$/, "")) {
    const at = lines.findIndex((line) => line.path === text || line.items?.includes(text));
    if (at >= 0) return at;
    if (!/[.[]/.test(text)) break;
  }
  return -1;
}

function listing(every, first, marks) {
  const lines = every.length > LONGEST ? [...every.slice(0, LONGEST), `… ${number(every.length - LONGEST)} more lines`] : every;
  return h("pre", { class: "listing", tabindex: "0", "aria-label": "YAML" }, lines.map((line, index) => {
    const highlight = marks.get(index);
    return h("span", { class: `line${highlight ? ` marked ${highlight.level}` : ""}`, id: highlight ? `mark-${index}` : null }, h("span", { class: "number", "aria-hidden": "true" }, first ? String(first + index) : ""), line, highlight?.text ? h("span", { class: "why" }, `← ${highlight.text}`) : null);
  }));
}

// The number of proxies that the object affects, and the reason for which some of them lack its last change. The delivery
// of an object with an error is no sign of health.
function delivered(delivery, usedBy, isFaulty, { unhealthy }) {
  const { affected, acknowledged, lacking } = delivery, time = delivery.since || delivery.time, since = time ? ` since ${clock(time, true)}` : "";
  const rest = delivery.refused + delivery.starting + delivery.waiting + delivery.sent + delivery.unknown - lacking.length;
  const reasons = lacking.length ? h("ul", { class: "items" }, lacking.map((one) => { const row = unhealthy.find(({ id }) => id === one.id); return row ? unhealthyItem(row) : h("li", {}, link(toProxy(one.id), one.proxy), ` ${one.reason}`); }), rest > 0 ? h("li", { class: "soft" }, `and ${number(rest)} more`) : null) : null;
  const gone = delivery.disconnected ? h("p", { class: "soft" }, `${count(delivery.disconnected, "proxy", "proxies")} disconnected before ${delivery.disconnected === 1 ? "it" : "they"} acknowledged the change. A proxy receives the current configuration when it connects again.`) : null;
  if (!affected) return [usedBy.length ? null : h("p", {}, mark("note", `Active${since}. It affects no connected proxy now.`)), reasons, gone];
  const all = acknowledged === affected, who = affected === 1 ? all ? "the only proxy" : "0 of 1 proxies" : all ? `all ${number(affected)} proxies` : `${number(acknowledged)} of the ${number(affected)} proxies`;
  return [h("p", {}, mark(all ? isFaulty ? "note" : "ok" : delivery.refused ? "bad" : "busy", `Rolled out to ${who}`), ` that it affects${all ? since : ""}.`), reasons, gone];
}

// The lines that cause what is wrong, where no problem has their path: endpoints that are not ready, faults that are
// injected, and the script that Envoy's error quotes.
function culprits(lines, { ref, problems }) {
  const marks = new Map(), add = (matches, level, text) => lines.forEach((line, index) => { if (matches(line)) marks.set(index, { level, text }); });
  if (ref.kind === "EndpointSlice") add(({ path, text }) => /^endpoints\[\d+\]\.conditions\.ready$/.test(path) && text.endsWith("false"), problems.some((one) => one.severity === "error") ? "bad" : "warn", "this endpoint gets no requests");
  if (ref.kind === "VirtualService") add(({ path }) => /\.fault\.(abort|delay)$/.test(path), "warn", "injected fault");
  for (const problem of ref.kind === "EnvoyFilter" ? problems.filter((one) => one.code === "refused") : []) {
    const quoted = problem.message.match(/\[string "(.+?)(\.\.\.)?"\]/)?.[1];
    if (quoted) add(({ value }) => typeof value === "string" && value.trim().replace(/\s+/g, " ").startsWith(quoted.replace(/\s+/g, " ")), "bad", problem.message);
  }
  return marks;
}

// A Gateway that uses the certificate of a Secret, for which hosts and on which proxies.
function use({ gateway, hosts, moreHosts, proxies, total }) {
  const names = hosts.map((host, index) => [index ? ", " : "", h("b", {}, host)]);
  return h(
    "li", {}, objectLink(gateway), " for ", names, moreHosts ? ` and ${count(moreHosts, "more host")}` : "",
    total ? [" on ", listed(proxies.map((proxy) => link(toProxy(proxy.id), proxy.name))), total > proxies.length ? ` of ${count(total, "proxy", "proxies")}` : ""] : "; none of its proxies is connected", ".",
  );
}

export function drawObject(answer, state, path) {
  const { ref, problems } = answer;
  const marks = new Map(), name = ref.kind.toLowerCase();
  let body;
  if (answer.text) {
    const lines = answer.text.split("\n");
    for (const problem of [...problems].reverse()) if (problem.line >= answer.line) marks.set(problem.line - answer.line, { level: LEVEL[problem.severity], text: problem.message });
    body = listing(lines, answer.line, marks);
  }
  const force = answer.object ? yamlLines(answer.object) : [];
  const forceMarks = culprits(force, answer);
  for (const [one, level, text] of [...problems.map((problem) => [problem.path || "", LEVEL[problem.severity], problem.message]), [path, "chosen", ""]].filter(([at]) => at)) {
    const at = lineOf(force, one);
    if (at >= 0 && !forceMarks.has(at)) forceMarks.set(at, { level, text });
  }
  const shownForce = answer.object ? listing(force.map((line) => line.text), 0, forceMarks) : null;
  const refusedNow = answer.invalid;
  const showFile = body && (refusedNow || !shownForce || (marks.size > 0 && !forceMarks.size));
  const changes = state.changes.filter((change) => change.objects.some((one) => one.kind === ref.kind && nameOf(one) === nameOf(ref))).slice(0, 5);
  return [
    h("h2", {}, `${ref.kind} ${nameOf(ref)}`),
    h("p", { class: "soft" }, answer.source ? `from ${answer.source}${answer.line ? `:${answer.line}` : ""}` : "", answer.derivedFrom.length ? [" derived from ", answer.derivedFrom.map((one) => objectLink(one))] : null, ref.namespace ? [" · ", link(to("namespace", ref.namespace), `namespace ${ref.namespace}`)] : null),
    refusedNow ? h("p", { class: "verdict" }, mark("bad", answer.object ? "It has errors, so its last valid version is in force." : "It has errors and is not in force.")) : null,
    answer.delivery && !refusedNow ? delivered(answer.delivery, answer.usedBy, problems.some((one) => one.severity === "error"), state.fleet) : null,
    answer.usedBy.length ? section("Used by", h("ul", {}, answer.usedBy.map(use))) : null,
    answer.effects.length ? h("ul", {}, answer.effects.map((one) => h("li", {}, `Shows ${count(one.services, "service")} to ${count(one.proxies, "proxy", "proxies")} in `, link(to("namespace", one.namespace), one.namespace), `, and hides ${number(one.hidden)}.`))) : null,
    problems.length ? section("Problems", h("ul", { class: "items" }, problems.map(problemItem))) : null,
    answer.routeProblems.length ? section("Problems of its routes", h("ul", { class: "items" }, answer.routeProblems.map(problemItem))) : null,
    answer.certificates.length ? section("Certificate", answer.certificates.map((one) => h("p", {}, mark(one.ends < Date.now() / 1000 ? "bad" : one.ends < Date.now() / 1000 + 7 * 86400 ? "warn" : "ok", one.ends < Date.now() / 1000 ? `expired ${span(Date.now() / 1000 - one.ends)} ago` : `${span(one.ends - Date.now() / 1000)} left`), ` until ${new Date(one.ends * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`))) : null,
    answer.hosts.length ? section("Routes to", h("ul", {}, answer.hosts.map((one) => h("li", {}, one.namespace ? link(toService(one), one.host) : [h("b", {}, one.host), " ", mark("bad", "does not exist"), one.similar ? [": did you mean ", link(toService({ namespace: one.similar.split(".")[1], host: one.similar }), one.similar), "?"] : ""])))) : null,
    showFile ? section("Source file", body) : null,
    shownForce ? showFile ? fold("force", answer.object && refusedNow ? "Active configuration: the last valid version" : "Active configuration", false, shownForce) : section("Active configuration", shownForce) : null,
    body && !showFile ? fold("file", "Source file", false, body) : null,
    changes.length ? section("What changed", h("p", { class: "soft" }, "The numbers count the proxies that each change affected when it was made."), h("ul", { class: "items" }, changes.map((change) => changeItem(change, state)))) : null,
    section("CLI", problems.length ? command(`pilotctl problems${ref.namespace ? ` -n ${ref.namespace}` : ""}`) : null, answer.object ? command(`pilotctl rollout status ${ref.kind}/${ref.name}${ref.namespace ? ` -n ${ref.namespace}` : ""}`) : null, answer.source.includes("/") ? null : command(`kubectl get ${ref.group ? `${name}.${ref.group}` : name} ${ref.name}${ref.namespace ? ` -n ${ref.namespace}` : ""} -o yaml`)),
  ];
}
