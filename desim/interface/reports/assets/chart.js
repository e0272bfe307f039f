"use strict";
// A chart of curves by uPlot: zoom, hover, keyboard, and the same numbers as a table.

const UNITS = {
  time: [[1e-3, "µs", 1e6], [1, "ms", 1e3], [600, "s", 1], [10800, "min", 1 / 60], [Infinity, "h", 1 / 3600]],
  bytes: [[1e3, "B", 1], [1e6, "kB", 1e-3], [1e9, "MB", 1e-6], [1e12, "GB", 1e-9], [Infinity, "TB", 1e-12]],
};
const NAMES = {
  time: "virtual time", round: "round", bytes: "data delivered", epsilon: "epsilon of the agent that spends most",
};
const DASHES = [[], [7, 4], [2, 3], [8, 3, 2, 3]];
const COLOURS = 7;
const SVG = "http://www.w3.org/2000/svg";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const digits = (value) => (value === 0 ? "0" : Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3
  ? value.toExponential(3).replace(/\.?0+e/, "e") : String(Number(value.toPrecision(4))));

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function swatch(number) {
  const svg = document.createElementNS(SVG, "svg"), line = document.createElementNS(SVG, "line");
  svg.setAttribute("viewBox", "0 0 24 8");
  svg.setAttribute("aria-hidden", "true");
  const dash = DASHES[Math.floor(number / COLOURS) % DASHES.length].join(" ");
  const drawn = { x1: 0, x2: 24, y1: 4, y2: 4, stroke: colour(`--c${number % COLOURS}`), "stroke-width": 3 };
  for (const [key, value] of Object.entries(drawn)) line.setAttribute(key, value);
  if (dash) line.setAttribute("stroke-dasharray", dash);
  svg.append(line);
  return svg;
}

// Ticks of a logarithmic axis: round numbers, fewer of them the more decades there are.
function decades(low, high) {
  const ticks = [], from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high)), many = Math.log10(high / low);
  if (many < 0.6) {
    const raw = (high - low) / 5, unit = 10 ** Math.floor(Math.log10(raw));
    const step = unit * [1, 2, 5, 10].find((n) => n * unit >= raw);
    for (let y = Math.ceil(low / step) * step; y <= high; y += step) ticks.push(Number(y.toPrecision(6)));
    return ticks;
  }
  const every = Math.max(1, Math.ceil(many / 8)), within = many < 1.2 ? [1, 2, 3, 4, 5, 6, 8] : many < 4 ? [1, 2, 5] : [1];
  for (let k = from; k <= to; k++) {
    if (k % every === 0) ticks.push(...within.map((n) => Number(`${n}e${k}`)));
  }
  return ticks.filter((y) => y >= low && y <= high);
}

// The value that holds at x: the last one at or before it; undefined outside of the curve.
function held(curve, x) {
  const { xs, ys } = curve;
  if (!xs.length || x < xs[0] || x > curve.until) return undefined;
  let low = 0, high = xs.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle; else high = middle;
  }
  return ys[low];
}

// Points whose x is known; of several at one x the last.
function curveOf(label, number, x, y, factor) {
  const xs = [], ys = [];
  for (let i = 0; i < x.length; i++) {
    if (x[i] === null) continue;
    const at = x[i] * factor;
    if (xs.length && at === xs[xs.length - 1]) ys[ys.length - 1] = y[i];
    else { xs.push(at); ys.push(y[i]); }
  }
  return { label, number, xs, ys, until: xs.length ? xs[xs.length - 1] : 0 };
}

// Runs that differ in the seed only as one curve: the median, and a band of all of them, of more than ten
// the middle 80 %. Last values hold after the end; the band ends where half of the seeds have ended; a
// value that is not finite counts as the worst, as does a seed that failed from its last value on; an end of
// the band that is then not finite is left open. The figures of desim plot follow the same rule.
function band(label, number, members, rising) {
  const n = members.length, worst = rising ? -Infinity : Infinity;
  const last = Math.max(...members.filter((one) => !one.failed).map((one) => one.until));
  const until = members.map((one) => (one.failed ? Math.max(last, one.until) : one.until)).sort((a, b) => a - b)[(n - 1) >> 1];
  const from = Math.max(...members.map((one) => one.xs[0]));
  const all = [...new Set(members.flatMap((one) => one.xs))].filter((x) => x >= from && x <= until).sort((a, b) => a - b);
  const step = Math.max(1, Math.ceil(all.length / 1000));
  const xs = all.filter((_, i) => i % step === 0 || i === all.length - 1);
  const value = (one, x) => {
    const y = one.failed && x > one.until ? null : held(one, Math.min(x, one.until));
    return y === null ? worst : y;
  };
  const rows = xs.map((x) => members.map((one) => value(one, x)).sort((a, b) => a - b));
  const out = n <= 10 ? 0 : Math.floor(0.1 * (n - 1));
  const finite = (y) => (Number.isFinite(y) ? y : null);
  return {
    label: `${label}: median and ${out ? "middle 80 %" : "range"} of ${n} seeds`, number, xs, until,
    ys: rows.map((row) => finite(row[(n - 1) >> 1] / 2 + row[n >> 1] / 2)),
    low: rows.map((row) => finite(row[out])), high: rows.map((row) => finite(row[n - 1 - out])),
  };
}

// Where an axis may begin that leaves out how two curves or more begin, and where they begin; null where
// nothing is gained by it. The figures of desim plot follow the same rule.
function beginning(curves, rising) {
  if (curves.length < 2) return null;
  const finite = (ys) => ys.filter((y) => Number.isFinite(y)), sides = (one) => [one.low, one.high].filter(Boolean);
  const after = ({ xs }) => Math.max(0, xs.findLastIndex((x) => x <= xs[0] + 0.2 * (xs[xs.length - 1] - xs[0])));
  const within = (ys, share) => {
    const sorted = finite(ys).sort((a, b) => a - b), out = Math.round(share * (sorted.length - 1));
    return sorted.length ? [sorted[out], sorted[sorted.length - 1 - out]] : [];
  };
  const every = curves.flatMap((one) => finite([one.ys, ...sides(one)].flat()));
  const later = curves.flatMap((one) => within(one.ys.slice(after(one)), 0));
  const ends = later.concat(curves.flatMap((one) => sides(one).flatMap((ys) => within(ys.slice(after(one)), 0.05))));
  const firsts = curves.map((one) => one.ys[0]);
  if (!later.length || !firsts.every(Number.isFinite)) return null;
  const least = (ys) => ys.reduce((a, b) => Math.min(a, b)), most = (ys) => ys.reduce((a, b) => Math.max(a, b));
  const low = least(ends), high = most(ends), margin = 0.06 * (high - low);
  const edge = rising ? low - margin : high + margin;
  const left = rising ? most(every) - edge : edge - least(every);
  const outside = firsts.every((y) => (rising ? y < edge : y > edge));
  if (!outside || !(left > 0 && left < 0.5 * (most(every) - least(every)))) return null;
  return { edge, firsts, other: rising ? most(every) + margin : least(every) - margin };
}

class Chart {
  constructor(root) {
    this.root = root;
    this.plot = root.querySelector(".plot");
    this.readout = root.querySelector(".readout");
    this.numbers = root.querySelector(".numbers");
    this.numbers.hidden = false;
    this.numbers.addEventListener("toggle", () => this.tabulate());
    root.querySelector("[name=reset]").addEventListener("click", () => this.draw());
    this.plot.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.resize()).observe(this.plot);
  }

  size() {
    const width = Math.max(240, this.plot.clientWidth);
    return { width, height: Math.round(Math.min(420, Math.max(240, 0.5 * width))) };
  }

  resize() {
    if (this.drawn && this.drawn.width !== this.size().width) this.drawn.setSize(this.size());
  }

  // shown: {x, xName, yName, percent, log, stepped, curves}
  draw(shown = this.shown) {
    this.shown = shown;
    if (this.drawn) this.drawn.destroy();
    this.drawn = null;
    this.plot.replaceChildren();
    this.readout.textContent = "";
    this.cut = shown.log || shown.whole ? null : beginning(shown.curves, shown.rising);
    this.plot.setAttribute("aria-label", this.description());
    this.readout.textContent = this.cutSaid();
    const whole = this.root.querySelector("[data-whole]");
    if (whole) whole.hidden = !this.cut && !shown.whole;
    if (!shown.curves.length) this.plot.append(element("p", shown.empty || "Nothing to show.", "empty"));
    else this.drawn = new uPlot(this.options(), this.data(), this.plot);
    this.tabulate();
  }

  description() {
    const { curves, xName, yName } = this.shown;
    const ends = curves.slice(0, 8).map((one) => `${one.label} ends at ${this.worded(one.ys[one.ys.length - 1])}`);
    return `Chart of ${yName} against ${xName}, ${curves.length} curve${curves.length === 1 ? "" : "s"}. ${ends.join("; ")}.`;
  }

  cutSaid() {
    if (!this.cut) return "";
    const { edge, firsts } = this.cut, [low, high] = [Math.min(...firsts), Math.max(...firsts)].map((y) => this.worded(y));
    return `Cut ${this.shown.rising ? "below" : "above"} ${this.worded(edge)}: the curves begin at ${low === high ? low : `${low} to ${high}`}.`;
  }

  worded(value) {
    if (value === null || value === undefined) return "-";
    return this.shown.percent ? `${digits(100 * value)} %` : digits(value);
  }

  data() {
    const shownY = (ys) => (this.shown.log ? ys.map((y) => (y > 0 ? y : null)) : ys);
    const tables = this.shown.curves.map((one) => [one.xs, ...[one.ys, one.low, one.high].filter(Boolean).map(shownY)]);
    return uPlot.join(tables);
  }

  options() {
    const { curves, xName, yName, log, stepped } = this.shown;
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { stroke: colour("--grid"), width: 1 }, font: "12px system-ui, sans-serif", labelFont: "13px system-ui, sans-serif" };
    const paths = stepped ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear();
    const series = [{}], bands = [];
    for (const one of curves) {
      const stroke = colour(`--c${one.number % COLOURS}`), dash = DASHES[Math.floor(one.number / COLOURS) % DASHES.length];
      series.push({ label: one.label, stroke, dash, width: 2, paths, points: { show: one.xs.length <= 25, size: 5, fill: stroke } });
      if (!one.low) continue;
      const edge = { stroke, width: 0.5, paths, points: { show: false } };
      series.push({ ...edge, label: "low" }, { ...edge, label: "high" });
      bands.push({ series: [series.length - 1, series.length - 2], fill: `${stroke}30` });
    }
    const last = Math.max(...curves.map((one) => one.until));
    const widest = (u, values) => 24 + 7 * Math.max(2, ...(values || []).map((text) => (text || "").length));
    return {
      ...this.size(), series, bands, legend: { show: false },
      scales: {
        x: { time: false, range: (u, low, high) => (u.zoomed ? [low, high] : [0, last * 1.02 || 1]) },
        y: log ? { distr: 3, range: (u, low, high) => (low > 0 ? [low / 1.15, high * 1.15] : [0.1, 1]) } : this.cut
          ? { range: (u, low, high) => (u.zoomed ? [low, high] : [this.cut.edge, this.cut.other].sort((a, b) => a - b)) } : {},
      },
      axes: [
        { ...axis, label: xName, labelSize: 22, size: 34, values: (u, ticks) => ticks.map(digits) },
        { ...axis, label: yName, labelSize: 22, size: widest, ...(log ? { splits: (u, at, low, high) => decades(low, high), filter: (u, ticks) => ticks } : {}), values: (u, ticks) => ticks.map((y) => (y === null ? null : this.worded(y))) },
      ],
      cursor: { drag: { x: true, y: true, uni: 40 }, points: { show: false }, y: false },
      hooks: { setCursor: [(u) => this.hover(u)], setSelect: [(u) => { u.zoomed = u.select.width > 0; }], init: [(u) => this.tip(u)] },
    };
  }

  tip(u) {
    this.box = element("div", undefined, "tip");
    this.box.hidden = true;
    u.over.append(this.box);
    u.over.addEventListener("dblclick", () => this.draw());
    u.over.addEventListener("mouseleave", () => { this.box.hidden = true; });
  }

  hover(u) {
    const { left, top } = u.cursor;
    if (left === null || left < 0) { this.box.hidden = true; return; }
    const x = this.snapped(u.posToVal(left, "x"));
    const rows = this.at(x);
    this.box.replaceChildren(element("b", `${digits(x)}${this.shown.unit ? ` ${this.shown.unit}` : ""}`));
    for (const { one, text } of rows.slice(0, 12)) {
      const row = element("div");
      row.append(swatch(one.number), element("span", one.label.length > 40 ? `${one.label.slice(0, 38)}…` : one.label), element("span", text, "v"));
      this.box.append(row);
    }
    if (rows.length > 12) this.box.append(element("div", `and ${rows.length - 12} more`));
    this.box.hidden = !rows.length;
    const width = this.box.offsetWidth, room = u.over.clientWidth;
    this.box.style.left = `${Math.max(0, left + 14 + width > room ? left - width - 10 : left + 14)}px`;
    this.box.style.top = `${Math.max(0, Math.min(top + 12, u.over.clientHeight - this.box.offsetHeight))}px`;
  }

  // Rounds are whole.
  snapped(x) {
    return this.shown.stepped ? x : Math.max(0, Math.round(x));
  }

  at(x) {
    const inside = this.shown.curves.filter((one) => held(one, x) !== undefined);
    return inside.map((one) => ({ one, text: this.told(one, x) }));
  }

  // The value at x, of a band with its range.
  told(one, x) {
    const value = this.worded(held(one, x));
    if (!one.low || held(one, x) === undefined) return value;
    const [low, high] = [one.low, one.high].map((ys) => this.worded(held({ ...one, ys }, x)));
    return `${value} (${low} to ${high})`;
  }

  key(event) {
    const u = this.drawn;
    if (!u || event.ctrlKey || event.metaKey || event.altKey) return;
    const width = u.over.clientWidth, step = (event.shiftKey ? 0.1 : 0.02) * width;
    const left = u.cursor.left >= 0 ? u.cursor.left : -step;
    const moves = { ArrowRight: left + step, ArrowLeft: left - step, Home: 0, End: width };
    if (event.key in moves) {
      const to = Math.min(width, Math.max(0, moves[event.key]));
      u.setCursor({ left: to, top: 0.15 * u.over.clientHeight });
      this.say(this.snapped(u.posToVal(to, "x")));
    } else if (event.key === "+" || event.key === "=" || event.key === "-") this.zoom(event.key === "-" ? 2 : 0.5);
    else if (event.key === "0") this.draw();
    else return;
    event.preventDefault();
  }

  zoom(factor) {
    const u = this.drawn, { min, max } = u.scales.x;
    const centre = u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : 0.5 * (min + max);
    u.zoomed = true;
    u.setScale("x", { min: Math.max(0, centre - factor * (centre - min)), max: centre + factor * (max - centre) });
    this.readout.textContent = `From ${digits(u.scales.x.min)} to ${digits(u.scales.x.max)} ${this.shown.unit || ""}`;
  }

  say(x) {
    const told = this.at(x).slice(0, 6).map(({ one, text }) => `${one.label} ${text}`);
    this.readout.textContent = `${this.shown.xName} ${digits(x)}: ${told.join("; ") || "no value"}`;
  }

  tabulate() {
    if (!this.numbers.open || !this.shown) return;
    const { curves, xName } = this.shown, last = Math.max(0, ...curves.map((one) => one.until));
    const table = element("table"), head = element("tr"), body = element("tbody");
    head.append(element("th", xName), ...curves.map((one) => element("th", one.label, "n")));
    head.querySelectorAll("th").forEach((one) => one.setAttribute("scope", "col"));
    for (let i = 0; i <= 12; i++) {
      const x = this.snapped((i * last) / 12), row = element("tr"), name = element("th", digits(x));
      name.setAttribute("scope", "row");
      row.append(name, ...curves.map((one) => element("td", this.told(one, x), "n")));
      body.append(row);
    }
    const top = element("thead");
    top.append(head);
    table.append(element("caption", `${this.shown.yName}: the value that holds then`), top, body);
    this.numbers.querySelector(".scroll").replaceChildren(table);
  }
}
