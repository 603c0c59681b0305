/* Looking into memory over time: what is shown is drawn anew from the data for every view, lowest to
   highest in each column of pixels, so that no peak is lost when much is shown at once. */

const told = (tag, words, name) => {
  const element = document.createElement(tag);
  if (words !== undefined) element.textContent = words;
  if (name) element.className = name;
  return element;
};

/* Numbers packed by the writer: differences, seven bits a byte, the sign in the lowest bit. */
const unpacked = (lane, tick) => {
  const text = atob(lane.data), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const n = lane.count;
  const out = { from: new Float64Array(n), to: new Float64Array(n), low: new Float64Array(n), high: new Float64Array(n) };
  let at = 0;
  const next = () => {
    let number = 0, worth = 1, byte;
    do {
      byte = bytes[at++];
      number += (byte & 127) * worth;
      worth *= 128;
    } while (byte > 127);
    return number % 2 ? -(number + 1) / 2 : number / 2;
  };
  /* Ticks of 0.1 ms and a quantum of a millionth or more: dividing gives the nearest number, multiplying would not. */
  const ticks = Math.round(1 / tick), parts = lane.quantum < 1 ? Math.round(1 / lane.quantum) : 0;
  const value = v => (parts ? v / parts : v * lane.quantum);
  let time = 0, low = 0;
  for (let i = 0; i < n; i++) {
    const from = time + next();
    time = from + next();
    low += next();
    out.from[i] = from / ticks;
    out.to[i] = time / ticks;
    out.low[i] = value(low);
    out.high[i] = value(low + next());
  }
  return out;
};

/* A figure with the decimals that its size deserves. */
const figure = v => {
  const size = Math.abs(v);
  const decimals = size >= 999.5 ? 0 : size >= 99.95 ? 1 : size >= 9.995 ? 2 : 3;
  return v.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
};

/* The last place whose value is not above `x`; -1 where there is none. */
const lastUpTo = (values, x) => {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= x) low = middle + 1; else high = middle;
  }
  return low - 1;
};

/* Even steps for an axis: 1, 2 or 5 times a power of ten. */
const step = (span, most) => {
  const rough = span / Math.max(1, most);
  const ten = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map(n => n * ten).find(s => s >= rough) || 10 * ten;
};

const seconds = (t, span) => {
  const decimals = span > 100 ? 0 : span > 10 ? 1 : span > 1 ? 2 : span > 0.1 ? 3 : 4;
  return t.toFixed(decimals).replace(/^-(0(\.0*)?)$/, "$1");
};

/* What no component explains. */
const REST = "part-unexplained";

const look = (figureElement, tip) => {
  const data = JSON.parse(figureElement.querySelector("script").textContent);
  const lanes = data.lanes.filter(l => l.count > 0);
  if (!lanes.length || !(data.range[1] > data.range[0])) return;
  for (const lane of lanes) {
    Object.assign(lane, unpacked(lane, data.tick));
    const limit = lane.capacity !== null && !lane.far ? lane.capacity : 0;
    /* A share is one of the whole. */
    lane.top = lane.high.reduce((a, b) => Math.max(a, b), lane.unit === "%" ? 100 : limit);
    lane.bottom = lane.low.reduce((a, b) => Math.min(a, b), 0);
    /* Where samples lie much further apart than is usual in the lane, nothing is known in between. */
    const steps = [];
    for (let i = 1; i < lane.count; i += Math.ceil(lane.count / 500)) steps.push(lane.from[i] - lane.from[i - 1]);
    lane.gap = Math.max(8 * (steps.sort((a, b) => a - b)[steps.length >> 1] || 0), 1);
  }
  data.events.sort((a, b) => a[1] - b[1]);
  const whole = [Math.min(data.range[0], ...lanes.map(l => l.from[0])), Math.max(data.range[1], ...lanes.map(l => l.to[l.count - 1]))];
  const least = Math.max((whole[1] - whole[0]) / 1e6, 0.002);
  let view = [...whole], cursor = null, fitted = false, due = false;

  const picture = figureElement.querySelector(".picture");
  picture.classList.add("replaced");
  const box = told("div", undefined, "look");
  const tools = told("div", undefined, "tools");
  const shown = told("span", "", "shown");
  const button = (words, label, action) => {
    const it = told("button", words);
    it.type = "button";
    it.setAttribute("aria-label", label);
    it.title = label;
    it.addEventListener("click", action);
    tools.append(it);
    return it;
  };
  const canvas = told("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-roledescription", "chart to look into");
  const keys = told("p", "Arrow keys move the line, with Shift the view; + and − zoom, 0 shows all. Ctrl with the wheel zooms, and the wheel alone once the chart is clicked. Drag moves.", "keys");
  keys.id = figureElement.id + "-keys";
  canvas.setAttribute("aria-describedby", keys.id);
  canvas.setAttribute("aria-label", data.title);
  const title = told("p", data.title, "caption");
  if (data.simulated) title.append(told("span", "Simulated", "mark"));
  const spoken = told("p", "", "spoken");
  spoken.setAttribute("aria-live", "polite");
  button("+", "Zoom in", () => zoom(0.5));
  button("−", "Zoom out", () => zoom(2));
  button("All", "Show all", () => show(...whole));
  const fit = button("Fit heights", "Fit the heights to what is shown", () => {
    fitted = !fitted;
    fit.setAttribute("aria-pressed", fitted);
    draw();
  });
  fit.setAttribute("aria-pressed", "false");
  tools.append(shown);
  const entry = ([name, label]) => {
    const item = told("li");
    item.append(told("span", undefined, "swatch " + name), label);
    return item;
  };
  const parts = new Map(lanes.flatMap(l => l.legend).map(part => [part[0], part]));
  const legend = told("ul", undefined, "legend");
  legend.append(...[...parts.values()].sort((a, b) => (a[0] === REST) - (b[0] === REST)).map(entry));
  legend.hidden = !parts.size;
  const narrow = told("ol", undefined, "phases");
  box.append(title, tools, legend, canvas, narrow, keys, spoken);
  if (data.note) keys.before(told("p", data.note, "remark"));
  picture.after(box);

  const left = 58, right = 12, head = 34, foot = 26, gap = 14;
  /* Memory is the subject: its lanes are tall. */
  const tall = lanes.filter(l => l.memory).length, others = lanes.length - tall;
  const heights = lanes.map(l => l.memory ? (tall > 4 ? 110 : tall > 2 ? 150 : tall > 1 ? 200 : 260) : others > 6 ? 56 : 70);
  const tops = heights.map((_, n) => head + heights.slice(0, n).reduce((sum, h) => sum + h + gap, 0));
  let width = 0;
  const height = tops[tops.length - 1] + heights[heights.length - 1] + foot;
  const x = t => left + (t - view[0]) / (view[1] - view[0]) * (width - left - right);
  const time = px => view[0] + (px - left) / (width - left - right) * (view[1] - view[0]);

  const show = (from, to) => {
    const span = Math.min(Math.max(to - from, least), whole[1] - whole[0]);
    from = (from + to) / 2 - span / 2;
    from = Math.min(Math.max(from, whole[0]), whole[1] - span);
    view = [from, from + span];
    draw();
  };
  const zoom = (factor, about) => {
    const [from, to] = view;
    if (about === undefined) about = cursor !== null && cursor >= from && cursor <= to ? cursor : (from + to) / 2;
    /* The moment under the pointer stays under it, also at the edges of what there is. */
    const span = Math.min(Math.max((to - from) * factor, least), whole[1] - whole[0]);
    const start = about - (about - from) / (to - from) * span;
    show(start, start + span);
  };
  const clock = t => {
    const start = data.origin ? Date.parse(data.origin) : NaN;
    return isNaN(start) ? "" : new Date(start + t * 1000).toISOString().replace("T", " ").replace(/\.?0*Z$/, "") + " UTC";
  };

  /* The stretch nearest to a moment. */
  const nearest = (lane, t) => {
    const before = Math.max(lastUpTo(lane.from, t), 0);
    const after = Math.min(before + 1, lane.count - 1);
    const far = i => Math.max(lane.from[i] - t, t - lane.to[i], 0);
    const i = far(after) < far(before) ? after : before;
    return { i, far: far(i) };
  };
  const readings = t => lanes.map(lane => {
    const { i, far } = nearest(lane, t);
    const unit = lane.unit ? (lane.unit === "%" ? " %" : " " + lane.unit) : "";
    if (far > lane.gap) return { lane, words: "not sampled" };
    const low = figure(lane.low[i]), high = figure(lane.high[i]);
    return { lane, words: (low === high ? low : low + " – " + high) + unit, value: lane.high[i] };
  });
  const near = t => {
    const reach = (view[1] - view[0]) / Math.max(width - left - right, 1) * 7;
    return {
      phases: data.phases.filter(p => p[1] <= t && t <= p[2]).map(p => p[0]),
      events: data.events.filter(e => Math.abs(e[1] - t) <= reach).slice(0, 6),
    };
  };

  let colours = {};
  const colour = n => colours[n] || (colours[n] = getComputedStyle(document.documentElement).getPropertyValue(n).trim());
  const draw = () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      paint();
    });
  };
  const paint = () => {
    width = box.clientWidth;
    if (!width) return;
    const dense = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * dense)) {
      canvas.width = Math.round(width * dense);
      canvas.height = Math.round(height * dense);
      canvas.style.height = height + "px";
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px " + (colour("--sans") || "sans-serif");
    const end = width - right, bottom = height - foot;
    backdrop(pen, end, bottom);
    lanes.forEach((lane, n) => paintLane(pen, lane, tops[n], heights[n], end));
    marks(pen, end, bottom);
    const span = view[1] - view[0];
    shown.textContent = seconds(view[0], span) + " – " + seconds(view[1], span) + " s";
    figureElement.dataset.from = view[0];
    figureElement.dataset.to = view[1];
  };
  const backdrop = (pen, end, bottom) => {
    /* A phase that is too narrow for its name has a number, and a line in the list below. */
    let after = 0;
    const listed = [];
    data.phases.forEach(([words, from, to], n) => {
      const a = Math.max(x(from), left), b = Math.min(x(to), end);
      if (b <= a) return;
      pen.fillStyle = colour(n % 2 ? "--chart-band" : "--chart-ground");
      pen.fillRect(a, head - 16, b - a, bottom - head + 16);
      const fits = pen.measureText(words).width + 6 <= b - a, said = fits ? words : String(n + 1);
      const wide = pen.measureText(said).width, start = Math.min((a + b - wide) / 2, end - wide);
      if (!fits) listed.push([n + 1, words + ", " + seconds(from, to - from) + " – " + seconds(to, to - from) + " s"]);
      if (start < after) return;
      pen.fillStyle = colour("--quiet");
      pen.textAlign = "left";
      pen.fillText(said, start, head - 4);
      after = start + wide + 4;
    });
    list(listed);
    const span = view[1] - view[0], by = step(span, (end - left) / 90);
    pen.textAlign = "center";
    pen.strokeStyle = colour("--line");
    pen.lineWidth = 1;
    for (let k = Math.ceil(view[0] / by); k * by <= view[1]; k++) {
      const at = Math.round(x(k * by)) + .5;
      pen.beginPath();
      pen.moveTo(at, head);
      pen.lineTo(at, bottom + 4);
      pen.stroke();
      pen.fillStyle = colour("--quiet");
      pen.fillText(seconds(k * by, by * 10) + " s", Math.min(Math.max(at, left + 4), end - 14), bottom + 18);
    }
  };
  let written = "";
  const list = phases => {
    if (written === (written = JSON.stringify(phases))) return;
    narrow.hidden = !phases.length;
    narrow.replaceChildren(...phases.map(([number, words]) => {
      const item = told("li", words);
      item.value = number;
      return item;
    }));
  };
  const cutTo = (pen, words, room) => {
    if (pen.measureText(words).width <= room) return words;
    let n = Math.min(words.length, 200);
    while (n > 0 && pen.measureText(words.slice(0, n) + "…").width > room) n--;
    return n ? words.slice(0, n) + "…" : "";
  };
  const paintLane = (pen, lane, top, laneHeight, end) => {
    const first = Math.max(lastUpTo(lane.from, view[0]) - 1, 0);
    const last = Math.min(lastUpTo(lane.from, view[1]) + 1, lane.count - 1);
    let low = lane.bottom, high = lane.top;
    if (fitted) {
      low = Infinity;
      high = -Infinity;
      for (let i = first; i <= last; i++) {
        if (lane.to[i] < view[0] || lane.from[i] > view[1]) continue;
        low = Math.min(low, lane.low[i]);
        high = Math.max(high, lane.high[i]);
      }
      if (!(high >= low)) { low = lane.bottom; high = lane.top; }
      const air = Math.max((high - low) * .08, Math.abs(high) * 1e-4, 1e-6);
      low -= air;
      high += air;
    }
    if (!(high > low)) high = low + 1;
    const base = top + laneHeight;
    const y = v => base - (v - low) / (high - low) * (laneHeight - 20);
    const ink = colour(lane.ink ? "--" + lane.ink : lane.memory ? "--chart-ink" : "--chart-muted");
    const by = step(high - low, laneHeight / 32);
    const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(by) + 1e-9)));
    pen.textAlign = "right";
    pen.lineWidth = 1;
    for (let k = Math.ceil(low / by); k * by <= high + by * 1e-6; k++) {
      const at = Math.round(y(k * by)) + .5;
      pen.strokeStyle = colour("--line");
      pen.beginPath();
      pen.moveTo(left, at);
      pen.lineTo(end, at);
      pen.stroke();
      pen.fillStyle = colour("--quiet");
      pen.fillText((k * by).toFixed(digits), left - 6, at + 4);
    }
    pen.save();
    pen.beginPath();
    pen.rect(left, top, end - left, laneHeight + 1);
    pen.clip();
    /* One column of pixels after the other: what it has lowest and highest, and where it begins and ends. */
    let run = [], column = null, before = -1;
    const flush = () => {
      if (column) run.push(column);
      column = null;
    };
    const put = (at, lo, hi) => {
      const px = Math.round(at);
      if (column && column.px === px) {
        column.lo = Math.min(column.lo, lo);
        column.hi = Math.max(column.hi, hi);
      } else {
        flush();
        column = { px, at, lo, hi };
      }
    };
    const stroke = () => {
      flush();
      if (!run.length) return;
      if (run.length === 1) run.push({ ...run[0], at: run[0].at + 1.5 });
      if (lane.layers.length) paintLayers(pen, lane, run, y, base);
      pen.fillStyle = ink;
      pen.strokeStyle = ink;
      pen.lineJoin = "round";
      pen.lineWidth = 1.5;
      const along = (way, points) => points.forEach((c, i) => pen[i || way ? "lineTo" : "moveTo"](c.at, y(way ? c.lo : c.hi)));
      if (!lane.layers.length) {
        pen.globalAlpha = .2;
        pen.beginPath();
        along(0, run);
        pen.lineTo(run[run.length - 1].at, base);
        pen.lineTo(run[0].at, base);
        pen.fill();
        pen.globalAlpha = 1;
      }
      pen.beginPath();
      along(0, run);
      along(1, run.slice().reverse());
      pen.closePath();
      /* Over layers the line is their upper edge, and what is between lowest and highest stays to be seen. */
      pen.globalAlpha = lane.layers.length ? .15 : 1;
      pen.fill();
      pen.globalAlpha = 1;
      if (lane.layers.length) {
        pen.beginPath();
        along(0, run);
      }
      pen.stroke();
      run = [];
    };
    for (let i = first; i <= last; i++) {
      if (before >= 0 && lane.from[i] - lane.to[before] > lane.gap) stroke();
      const a = Math.max(x(lane.from[i]), left - 50), b = Math.min(x(lane.to[i]), end + 50);
      put(a, lane.low[i], lane.high[i]);
      if (b - a >= 1) put(b, lane.low[i], lane.high[i]);
      before = i;
    }
    stroke();
    const drawn = lane.capacity !== null && lane.capacity <= high;
    if (drawn) {
      pen.strokeStyle = colour("--bad");
      pen.setLineDash([5, 4]);
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(left, y(lane.capacity));
      pen.lineTo(end, y(lane.capacity));
      pen.stroke();
      pen.setLineDash([]);
    }
    pen.restore();
    pen.fillStyle = ink;
    pen.textAlign = "left";
    pen.font = "600 12px " + colour("--sans");
    pen.fillText(cutTo(pen, lane.label + (lane.unit ? ", " + lane.unit : ""), end - left - 12), left + 6, top + 12);
    pen.font = "12px " + colour("--sans");
    if (lane.limit) {
      /* Over its line, or at the top edge with an arrow where it is above all that is shown. */
      const words = drawn || lane.far ? lane.limit : lane.limit + ", above";
      pen.textAlign = "right";
      pen.fillStyle = colour(drawn ? "--bad" : "--ink");
      pen.fillText(words, end - (drawn ? 4 : 16), drawn ? Math.max(y(lane.capacity) - 4, top + 12) : top + 12);
      if (!drawn) {
        pen.beginPath();
        pen.moveTo(end - 12, top + 12);
        pen.lineTo(end - 8, top + 3);
        pen.lineTo(end - 4, top + 12);
        pen.fill();
      }
    }
  };
  /* The known components of a run of columns, each cut at the measured line, and the rest above them. */
  const paintLayers = (pen, lane, run, y, base) => {
    const edges = lane.layers.flatMap(l => [l[3], l[4]]).filter(t => t > view[0] && t < view[1]);
    const columns = [];
    run.forEach((c, n) => {
      columns.push({ at: c.at, t: time(c.at), hi: c.hi });
      const next = run[n + 1];
      if (!next) return;
      for (const t of edges.filter(t => t > time(c.at) && t < time(next.at)).sort((a, b) => a - b)) {
        const hi = c.hi + (next.hi - c.hi) * (t - time(c.at)) / (time(next.at) - time(c.at));
        columns.push({ at: x(t), t: t - 1e-9, hi }, { at: x(t), t: t + 1e-9, hi });
      }
    });
    const lines = [];
    let lower = columns.map(() => 0), sums = lower;
    const px = (c, v) => Math.min(y(v), base);
    for (const [name, , value, from, to] of [...lane.layers, [REST, "", Infinity, -Infinity, Infinity]]) {
      sums = sums.map((sum, n) => sum + (columns[n].t >= from && columns[n].t < to ? value : 0));
      const upper = columns.map((c, n) => Math.min(sums[n], c.hi)), below = lower;
      lower = upper;
      const thick = n => px(columns[n], below[n]) - px(columns[n], upper[n]);
      if (!columns.some((_, n) => thick(n) > .4)) continue;
      pen.beginPath();
      columns.forEach((c, n) => pen[n ? "lineTo" : "moveTo"](c.at, px(c, upper[n])));
      for (let n = columns.length - 1; n >= 0; n--) pen.lineTo(columns[n].at, px(columns[n], below[n]));
      pen.closePath();
      pen.fillStyle = colour("--" + name);
      pen.fill();
      if (name === REST) {
        pen.fillStyle = hatching(pen);
        pen.fill();
      }
      const parted = n => thick(n) > 3 && px(columns[n], upper[n]) - px(columns[n], columns[n].hi) > 3;
      columns.forEach((c, n) => lines.push([n > 0 && parted(n - 1) && parted(n), c.at, px(c, upper[n])]));
    }
    /* Lines of the ground part neighbours. */
    pen.strokeStyle = colour("--chart-ground");
    pen.lineWidth = 1.5;
    pen.beginPath();
    for (const [on, at, up] of lines) pen[on ? "lineTo" : "moveTo"](at, up);
    pen.stroke();
  };
  let hatched = null;
  const hatching = pen => {
    if (hatched) return hatched;
    const tile = told("canvas"), by = 6;
    tile.width = tile.height = by;
    const on = tile.getContext("2d");
    on.strokeStyle = colour("--chart-ground");
    on.globalAlpha = .6;
    on.lineWidth = 1.8;
    on.beginPath();
    for (const start of [-by, 0, by]) {
      on.moveTo(start, by);
      on.lineTo(start + by, 0);
    }
    on.stroke();
    return hatched = pen.createPattern(tile, "repeat");
  };
  const marks = (pen, end, bottom) => {
    let after = left;
    data.events.forEach(([words, at, bad], n) => {
      const px = x(at);
      if (px < left || px > end) return;
      pen.strokeStyle = pen.fillStyle = colour(bad ? "--bad" : "--quiet");
      pen.lineWidth = 1;
      pen.setLineDash([2, 3]);
      pen.beginPath();
      pen.moveTo(px, 14);
      pen.lineTo(px, bottom);
      pen.stroke();
      pen.setLineDash([]);
      pen.beginPath();
      pen.moveTo(px - 4, 8);
      pen.lineTo(px + 4, 8);
      pen.lineTo(px, 15);
      pen.fill();
      /* A name is whole, on either side of its mark, or left to the list. */
      const whole = cutTo(pen, words, 300), wide = pen.measureText(whole).width;
      const next = n + 1 < data.events.length ? Math.min(x(data.events[n + 1][1]), end) : end;
      pen.textAlign = "left";
      if (px + 6 >= after && px + 6 + wide <= next - 6) {
        pen.fillText(whole, px + 6, 13);
        after = px + 12 + wide;
      } else if (px - 6 - wide >= after) {
        pen.fillText(whole, px - 6 - wide, 13);
        after = px + 6;
      }
    });
    if (cursor !== null && cursor >= view[0] && cursor <= view[1]) {
      const px = x(cursor);
      pen.strokeStyle = colour("--ink");
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(px, 16);
      pen.lineTo(px, bottom);
      pen.stroke();
    }
  };

  const point = (t, speak) => {
    cursor = Math.min(Math.max(t, whole[0]), whole[1]);
    figureElement.dataset.at = cursor;
    const span = view[1] - view[0], { phases, events } = near(cursor);
    const rows = [[seconds(cursor, span) + " s", clock(cursor), "head"]];
    if (phases.length) rows.push(["phase", phases.join(", ")]);
    for (const [words, at, bad] of events) rows.push([seconds(at, span) + " s", words, bad ? "bad" : "event"]);
    for (const { lane, words, value } of readings(cursor)) {
      rows.push([lane.label, words]);
      let rest = value === undefined ? 0 : value;
      for (const [, label, size, from, to] of lane.layers) {
        const part = cursor >= from && cursor < to ? Math.min(size, rest) : 0;
        if (part > 0) rows.push([label, figure(part) + " " + lane.unit, "part"]);
        rest -= part;
      }
      if (lane.layers.length && rest > lane.top * .005) rows.push(["Unexplained", figure(rest) + " " + lane.unit, "part"]);
    }
    const box = canvas.getBoundingClientRect();
    tip.rows(rows, box.left + x(cursor), box.top + head, box.top + head + heights[0] / 2);
    if (speak) spoken.textContent = rows.map(r => r.slice(0, 2).join(": ")).join("; ");
    draw();
  };
  const away = () => {
    cursor = null;
    tip.hide();
    draw();
  };

  const fingers = new Map();
  let grabbed = null;
  const place = event => event.clientX - canvas.getBoundingClientRect().left;
  canvas.addEventListener("pointerdown", event => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, place(event));
    grabbed = { view: [...view], at: [...fingers.values()] };
  });
  canvas.addEventListener("pointermove", event => {
    const at = place(event);
    if (!fingers.has(event.pointerId)) {
      if (at >= left && at <= width - right) point(time(at)); else away();
      return;
    }
    fingers.set(event.pointerId, at);
    const now = [...fingers.values()], perPixel = (grabbed.view[1] - grabbed.view[0]) / (width - left - right);
    const then = px => grabbed.view[0] + (px - left) * perPixel;
    if (now.length >= 2 && grabbed.at.length >= 2) {
      const apart = Math.max(Math.abs(now[1] - now[0]), 8), were = Math.max(Math.abs(grabbed.at[1] - grabbed.at[0]), 8);
      const middle = then((grabbed.at[0] + grabbed.at[1]) / 2), per = perPixel * were / apart;
      const from = middle - ((now[0] + now[1]) / 2 - left) * per;
      show(from, from + per * (width - left - right));
    } else {
      const by = (grabbed.at[0] - now[0]) * perPixel;
      if (Math.abs(grabbed.at[0] - now[0]) > 3) canvas.classList.add("moving");
      show(grabbed.view[0] + by, grabbed.view[1] + by);
    }
    tip.hide();
  });
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, event => {
    fingers.delete(event.pointerId);
    canvas.classList.remove("moving");
    if (fingers.size) grabbed = { view: [...view], at: [...fingers.values()] };
  });
  canvas.addEventListener("pointerleave", event => { if (!fingers.has(event.pointerId)) away(); });
  canvas.addEventListener("dblclick", event => zoom(0.5, time(place(event))));
  canvas.addEventListener("wheel", event => {
    /* A page scrolls under the wheel; a chart that was asked for takes it. */
    const asked = event.ctrlKey || event.metaKey || document.activeElement === canvas;
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!asked && !sideways) return;
    event.preventDefault();
    const lines = event.deltaMode === 1 ? 30 : 1;
    if (sideways) {
      const by = event.deltaX * lines * (view[1] - view[0]) / (width - left - right);
      show(view[0] + by, view[1] + by);
    } else {
      zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY * lines / 300))), time(place(event)));
    }
    const at = place(event);
    if (at >= left && at <= width - right) point(time(at));
  }, { passive: false });
  canvas.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const span = view[1] - view[0];
    const move = way => {
      if (event.shiftKey) {
        show(view[0] + way * span / 5, view[1] + way * span / 5);
        return;
      }
      const t = cursor === null || cursor < view[0] || cursor > view[1] ? view[0] + span / 2 : cursor + way * span / 100;
      if (t < view[0] || t > view[1]) show(view[0] + way * span / 2, view[1] + way * span / 2);
      point(t, true);
    };
    const does = {
      ArrowLeft: () => move(-1), ArrowRight: () => move(1),
      "+": () => zoom(0.5), "=": () => zoom(0.5), ArrowUp: () => zoom(0.5),
      "-": () => zoom(2), "_": () => zoom(2), ArrowDown: () => zoom(2),
      "0": () => show(...whole),
      Home: () => show(whole[0], whole[0] + span), End: () => show(whole[1] - span, whole[1]),
      Escape: away,
    }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  });
  canvas.addEventListener("blur", away);
  new ResizeObserver(() => draw()).observe(box);
  document.addEventListener("recoloured", () => {
    colours = {};
    hatched = null;
    draw();
  });
  paint();
};
