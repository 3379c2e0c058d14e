// Positions of boxes in layers from left to right, and of lines between them that never cross a box.
//
// Boxes are assigned to layers by the longest path, with cycles broken. A line that spans several layers gets a slot
// between the boxes of each layer that it passes, which it shares with the other lines to the same box. Layers are
// ordered by the mean position of their neighbours, and boxes are moved towards them as far as there is room.
// Libraries that do this are much larger: dagre 12 times, elkjs 190 times.

const SLOT = 8, ROUNDS = 6;

// Returns {boxes: Map(id → {x, y, w, h}), lines: [{from, to, points, backwards}], height, layers}.
// `nodes` are [{id, h}], `edges` [{from, to}]. `first` are the ids that belong to the first layer.
export function layered(nodes, edges, { boxWidth, gap, row, columns, tallest, first = new Set() }) {
  const links = acyclic(nodes, edges);
  let layerOf = longestPaths(nodes, links, first);
  layerOf = split(nodes, layerOf, columns, tallest);
  const depth = 1 + Math.max(-1, ...layerOf.values());
  if (depth > columns) return null;
  const { layers, chains } = slots(nodes, links, layerOf, depth);
  order(layers);
  place(layers, row);
  const pitch = boxWidth + gap, boxes = new Map();
  let top = Infinity, bottom = 0;
  for (const layer of layers) for (const slot of layer) { top = Math.min(top, slot.y); bottom = Math.max(bottom, slot.y + slot.h); }
  for (const [index, layer] of layers.entries()) {
    for (const slot of layer) {
      slot.x = index * pitch;
      slot.y -= top;
      if (slot.id !== undefined) boxes.set(slot.id, { x: slot.x, y: slot.y, w: boxWidth, h: slot.h });
    }
  }
  const lines = chains.map(({ edge, backwards, slots: passed }) => ({ edge, backwards, points: route(passed, boxWidth) }));
  return { boxes, lines, height: Math.max(0, bottom - top), width: depth * pitch - gap };
}

// Returns the edges as {from, to, edge, backwards}, where those that close a cycle are turned around.
function acyclic(nodes, edges) {
  const out = new Map(nodes.map((node) => [node.id, []])), state = new Map(), result = [];
  for (const edge of edges) if (out.has(edge.from) && out.has(edge.to) && edge.from !== edge.to) out.get(edge.from).push(edge);
  const indegree = new Map(nodes.map((node) => [node.id, 0]));
  for (const list of out.values()) for (const edge of list) indegree.set(edge.to, indegree.get(edge.to) + 1);
  const starts = nodes.map((node) => node.id).sort((a, b) => indegree.get(a) - indegree.get(b));
  for (const start of starts) {
    if (state.has(start)) continue;
    const stack = [[start, 0]];
    state.set(start, 1);
    while (stack.length) {
      const top = stack[stack.length - 1], list = out.get(top[0]);
      if (top[1] === list.length) { state.set(top[0], 2); stack.pop(); continue; }
      const edge = list[top[1]++], visit = state.get(edge.to);
      const backwards = visit === 1;
      result.push({ from: backwards ? edge.to : edge.from, to: backwards ? edge.from : edge.to, edge, backwards });
      if (!visit) { state.set(edge.to, 1); stack.push([edge.to, 0]); }
    }
  }
  return result;
}

function longestPaths(nodes, links, first) {
  const layer = new Map(nodes.map((node) => [node.id, first.size && !first.has(node.id) ? 1 : 0]));
  const waits = new Map(nodes.map((node) => [node.id, 0])), out = new Map(nodes.map((node) => [node.id, []]));
  for (const one of links) { waits.set(one.to, waits.get(one.to) + 1); out.get(one.from).push(one.to); }
  const ready = nodes.map((node) => node.id).filter((id) => !waits.get(id));
  while (ready.length) {
    const id = ready.pop();
    for (const next of out.get(id)) {
      layer.set(next, Math.max(layer.get(next), layer.get(id) + 1));
      waits.set(next, waits.get(next) - 1);
      if (!waits.get(next)) ready.push(next);
    }
  }
  return layer;
}

// Spreads tall layers over the columns that are left. Boxes of one layer have no lines between them.
function split(nodes, layerOf, columns, tallest) {
  const sizes = [];
  for (const layer of layerOf.values()) sizes[layer] = (sizes[layer] || 0) + 1;
  const parts = Array.from(sizes, () => 1);
  for (let left = columns - sizes.length; left > 0; left--) {
    const fullest = sizes.map((size, index) => (size || 0) / parts[index]);
    const index = fullest.indexOf(Math.max(...fullest));
    if (fullest[index] <= tallest) break;
    parts[index]++;
  }
  const starts = parts.map((_, index) => parts.slice(0, index).reduce((sum, n) => sum + n, 0));
  const used = sizes.map(() => 0), result = new Map();
  for (const node of nodes) {
    const layer = layerOf.get(node.id), per = Math.ceil(sizes[layer] / parts[layer]);
    result.set(node.id, starts[layer] + Math.floor(used[layer]++ / per));
  }
  return result;
}

// Returns the slots of each layer, and the slots that each line passes. Lines to the same box share slots.
function slots(nodes, links, layerOf, depth) {
  const layers = Array.from({ length: depth }, () => []), byId = new Map(), shared = new Map(), chains = [];
  for (const node of nodes) {
    const slot = { id: node.id, h: node.h, before: [], after: [] };
    byId.set(node.id, slot);
    layers[layerOf.get(node.id)].push(slot);
  }
  for (const one of links) {
    const passed = [byId.get(one.from)];
    for (let layer = layerOf.get(one.from) + 1; layer < layerOf.get(one.to); layer++) {
      const key = `${layer} ${one.to}`;
      if (!shared.has(key)) { const slot = { h: SLOT, before: [], after: [] }; shared.set(key, slot); layers[layer].push(slot); }
      passed.push(shared.get(key));
    }
    passed.push(byId.get(one.to));
    for (let index = 1; index < passed.length; index++) { passed[index - 1].after.push(passed[index]); passed[index].before.push(passed[index - 1]); }
    chains.push({ edge: one.edge, backwards: one.backwards, slots: passed });
  }
  return { layers, chains };
}

function order(layers) {
  layers.forEach((layer) => layer.forEach((slot, index) => { slot.at = index; }));
  for (let round = 0; round < ROUNDS; round++) {
    const down = round % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      for (const slot of layer) {
        const near = down ? slot.before : slot.after;
        slot.mean = near.length ? near.reduce((sum, other) => sum + other.at, 0) / near.length : slot.at;
      }
      layer.sort((a, b) => a.mean - b.mean || a.at - b.at);
      layer.forEach((slot, index) => { slot.at = index; });
    }
  }
}

function place(layers, row) {
  for (const layer of layers) { let y = 0; for (const slot of layer) { slot.y = y; y += slot.h + (slot.id === undefined ? 6 : row); } }
  const tallest = Math.max(0, ...layers.map((layer) => (layer.length ? layer[layer.length - 1].y + layer[layer.length - 1].h : 0)));
  for (const layer of layers) {
    const last = layer[layer.length - 1];
    const shift = last ? (tallest - last.y - last.h) / 2 : 0;
    for (const slot of layer) slot.y += shift;
  }
  for (let round = 0; round < ROUNDS; round++) {
    for (const layer of round % 2 ? [...layers].reverse() : layers) {
      for (const slot of layer) {
        const near = round % 2 ? slot.after : slot.before;
        slot.goal = near.length ? near.reduce((sum, other) => sum + other.y + other.h / 2, 0) / near.length - slot.h / 2 : slot.y;
      }
      settle(layer, row, tallest);
    }
  }
}

// Moves the slots of a layer to their goals without overlaps: runs of slots that touch share the mean of their goals.
function settle(layer, row, tallest) {
  const runs = [];
  for (const slot of layer) {
    let run = { slots: [slot], size: slot.h, goal: slot.goal };
    while (runs.length) {
      const last = runs[runs.length - 1], space = last.slots[last.slots.length - 1].id === undefined || run.slots[0].id === undefined ? 6 : row;
      if (last.goal + last.size + space <= run.goal) break;
      runs.pop();
      const offset = last.size + space, n = last.slots.length, m = run.slots.length;
      run = { slots: [...last.slots, ...run.slots], size: offset + run.size, goal: (last.goal * n + (run.goal - offset) * m) / (n + m) };
    }
    runs.push(run);
  }
  for (const run of runs) {
    let y = Math.max(0, Math.min(run.goal, Math.max(0, tallest - run.size)));
    run.slots.forEach((slot, index) => {
      if (index) y += slot.id === undefined || run.slots[index - 1].id === undefined ? 6 : row;
      slot.y = y;
      y += slot.h;
    });
  }
  for (let index = 1; index < layer.length; index++) {
    const above = layer[index - 1], space = above.id === undefined || layer[index].id === undefined ? 6 : row;
    layer[index].y = Math.max(layer[index].y, above.y + above.h + space);
  }
}

// Returns the points of a line: from the right side of the first box, straight through slots, to the left side of the last.
function route(passed, boxWidth) {
  const points = [];
  passed.forEach((slot, index) => {
    const y = slot.y + slot.h / 2;
    if (index) points.push([slot.x, y]);
    if (index < passed.length - 1) points.push([slot.x + boxWidth, y]);
  });
  return points;
}

// Returns an SVG path through points, which bends only between layers, where there are no boxes.
export function path(points) {
  let text = `M${points[0][0]} ${round(points[0][1])}`;
  for (let index = 1; index < points.length; index++) {
    const [x1, y1] = points[index - 1], [x2, y2] = points[index];
    const middle = (x1 + x2) / 2;
    text += index % 2 && Math.abs(y1 - y2) > 0.5 ? ` C${middle} ${round(y1)} ${middle} ${round(y2)} ${x2} ${round(y2)}` : ` L${x2} ${round(y2)}`;
  }
  return text;
}

const round = (n) => Math.round(n * 10) / 10;

// Positions for a narrow page: one column, and lines in lanes at its left side. Returns the same as `layered`.
export function stacked(nodes, edges, { width, gutter, row }) {
  const layerOf = longestPaths(nodes, acyclic(nodes, edges), new Set());
  const sorted = [...nodes].sort((a, b) => layerOf.get(a.id) - layerOf.get(b.id));
  const boxes = new Map(), lanes = new Map();
  let y = 0;
  for (const node of sorted) { boxes.set(node.id, { x: gutter, y, w: width - gutter, h: node.h }); y += node.h + row; }
  const targets = [...new Set(edges.filter((edge) => boxes.has(edge.from) && boxes.has(edge.to)).map((edge) => edge.to))];
  targets.forEach((target, index) => lanes.set(target, gutter - 12 - (index % Math.max(1, Math.floor((gutter - 16) / 5))) * 5));
  const lines = edges.filter((edge) => lanes.has(edge.to) && boxes.has(edge.from)).map((edge) => {
    const a = boxes.get(edge.from), b = boxes.get(edge.to), x = lanes.get(edge.to);
    const y1 = a.y + a.h / 2, y2 = b.y + b.h / 2, turn = y2 > y1 ? 4 : -4;
    return { edge, backwards: false, d: `M${gutter} ${y1} L${x + 4} ${y1} Q${x} ${y1} ${x} ${y1 + turn} L${x} ${y2 - turn} Q${x} ${y2} ${x + 4} ${y2} L${gutter} ${y2}` };
  });
  return { boxes, lines, height: Math.max(0, y - row), width };
}
