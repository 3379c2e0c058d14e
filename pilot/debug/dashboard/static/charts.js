// Charts of the last hour, with axes.
import { bytes, clock, h, number, s } from "./dom.js";

const WIDTH = 460, HEIGHT = 120, LEFT = 56, BOTTOM = 18, TOP = 8, HOUR = 3600;
// Fields of a point in the order in which the server sends them.
const FIELDS = ["time", "proxies", "waiting", "refusing", "responses", "bytes", "cpu", "memory", "changes"];

export const pointOf = (values) => (Array.isArray(values) ? Object.fromEntries(FIELDS.map((name, index) => [name, values[index]])) : values);

const rate = (name, scale = 1) => (point, before) => (before && point.time > before.time ? Math.max(0, (scale * (point[name] - before[name])) / (point.time - before.time)) : null);
const level = (name) => (point) => point[name];
const CHARTS = [
  ["Proxies", [["connected", level("proxies")], ["not up to date", level("waiting"), "warn"], ["rejecting", level("refusing"), "bad"]], number],
  ["Responses per second", [["responses", rate("responses")]], (n) => (n < 10 ? n.toFixed(1) : number(Math.round(n)))],
  ["Bytes per second", [["bytes", rate("bytes")]], bytes],
  ["CPU of the control plane", [["CPU", rate("cpu", 100)]], (n) => `${n < 10 ? n.toFixed(1) : Math.round(n)} %`],
  ["Memory of the control plane", [["memory", level("memory")]], bytes],
];

// Returns a figure for each chart. `points` are those of the last hour, and `changes` are marked on the time axis.
export function charts(points, changes, now) {
  return h("div", { class: "charts" }, CHARTS.map(([title, series, shown]) => chart(title, series, shown, points, changes, now)));
}

function chart(title, series, shown, points, changes, now) {
  const lines = series.map(([name, value, kind = ""]) => ({ name, kind, values: points.map((point, index) => [point.time, value(point, points[index - 1])]).filter(([, v]) => v !== null) }));
  const most = nice(Math.max(1e-9, ...lines.flatMap((line) => line.values.map(([, v]) => v))));
  const x = (time) => LEFT + ((WIDTH - LEFT - 6) * (time - now + HOUR)) / HOUR, y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * value) / most;
  const axis = [0, 0.5, 1].map((share) => [s("line", { class: "grid", x1: LEFT, x2: WIDTH - 6, y1: y(share * most), y2: y(share * most) }), s("text", { x: LEFT - 6, y: y(share * most) + 4, "text-anchor": "end" }, shown(share * most))]);
  const times = [60, 45, 30, 15, 0].map((minutes) => s("text", { x: x(now - 60 * minutes), y: HEIGHT - 3, "text-anchor": minutes === 60 ? "start" : minutes ? "middle" : "end" }, clock(now - 60 * minutes)));
  const marks = changes.filter((change) => change.time > now - HOUR && change.total).map((change) => s("line", { class: "change", x1: x(change.time), x2: x(change.time), y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM - 7 }));
  const curves = lines.map((line) => s("polyline", { class: `curve ${line.kind}`, points: line.values.filter(([time]) => time > now - HOUR).map(([time, v]) => `${x(time).toFixed(1)},${y(v).toFixed(1)}`).join(" ") }));
  const last = lines.map((line) => (line.values.length ? `${line.name} ${shown(line.values[line.values.length - 1][1])}` : "")).filter(Boolean);
  const label = `${title} in the last hour. Now: ${last.join(", ") || "unknown"}. Most: ${shown(most)}.`;
  return h("figure", {}, h("figcaption", {}, h("b", {}, title), h("span", {}, last.join(" · ") || "measured every 10 seconds")), s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label }, axis, times, marks, curves));
}

// The next round number.
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value)), first = [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((n) => n * power >= value);
  return first * power;
}
