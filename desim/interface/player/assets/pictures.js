"use strict";
// The three pictures: the network, a curve, the timeline. Each is a canvas that is drawn anew for a
// moment; what does not move is drawn once, on a canvas behind it.

const MAX_DOTS = 3000; // messages of a picture
const MAX_ARROWS = 1500; // of a timeline
const LANES = 60; // agents up to which each has its own
const LABELS = 40; // nodes up to which each is named

// Colours of the page, light or dark.
function palette() {
  const style = getComputedStyle(document.documentElement);
  const names = ["page", "panel", "line", "grid", "text", "soft", "link", "busy", "lost", "away", "idle", "rest",
    "ring", "wire", "down", "up", "ink"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

class Picture {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.behind = document.createElement("canvas");
    this.stale = true; // whether what is behind must be drawn again
    this.fit();
  }

  get layers() {
    return [this.canvas, this.behind];
  }

  // As many points as the screen has, up to four for one of the page.
  fit() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    for (const one of this.layers) {
      one.width = Math.max(1, Math.round(this.width * ratio));
      one.height = Math.max(1, Math.round(this.height * ratio));
      one.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    this.stale = true;
  }

  clear() {
    this.context.clearRect(0, 0, this.width, this.height);
  }

  begin(draw) {
    if (this.stale) {
      const back = this.behind.getContext("2d");
      back.clearRect(0, 0, this.width, this.height);
      draw(back);
      this.stale = false;
    }
    const pen = this.context;
    this.clear();
    pen.drawImage(this.behind, 0, 0, this.width, this.height);
    pen.font = "12px system-ui, sans-serif";
    return pen;
  }
}

// The network: nodes in their places, messages as dots on the right-hand side of their way.
class NetworkMap extends Picture {
  show(scene) {
    this.scene = scene;
    this.stale = true;
  }

  place(node) {
    const { places, nodes } = this.scene;
    const at = 2 * (node < 0 ? nodes : node);
    const margin = this.radius + (nodes <= LABELS ? 14 : 6);
    const half = [this.width / 2, this.height / 2];
    const wide = [Math.max(half[0] - margin, 1), Math.max(half[1] - margin, 1)];
    const round = this.scene.hub ? Math.min(...wide.map((one) => one * 1.35), Math.max(...wide)) : Infinity;
    return [half[0] + places[at] * Math.min(wide[0], round), half[1] + places[at + 1] * Math.min(wide[1], round)];
  }

  get radius() {
    const { nodes } = this.scene;
    return nodes <= 16 ? 12 : nodes <= LABELS ? 10 : Math.max(1.5, Math.min(8, 60 / Math.sqrt(nodes)));
  }

  wires(pen, colours) {
    const { links } = this.scene;
    pen.strokeStyle = colours.wire;
    pen.lineWidth = links.length > 600 ? 0.5 : 1;
    pen.beginPath();
    for (let i = 0; i < links.length; i += 2) {
      pen.moveTo(...this.place(links[i]));
      pen.lineTo(...this.place(links[i + 1]));
    }
    pen.stroke();
  }

  // Where a message is: on its way, a little to the right of the line, as on a road.
  spot(i, tick) {
    const { messages, source, target } = this.scene;
    const [x0, y0] = this.place(source[i]);
    const [x1, y1] = this.place(target[i]);
    const long = Math.hypot(x1 - x0, y1 - y0) || 1;
    const share = messages.share(i, tick);
    const aside = Math.min(3.5, this.radius / 2);
    return [x0 + share * (x1 - x0) - (aside * (y1 - y0)) / long, y0 + share * (y1 - y0) + (aside * (x1 - x0)) / long];
  }

  draw(moment, colours) {
    const { scene } = this;
    if (!scene.places) {
      this.clear();
      return;
    }
    const pen = this.begin((back) => this.wires(back, colours));
    this.glow(pen, moment, colours);
    if (scene.hub) this.cloud(pen, moment, colours);
    this.agents(pen, moment, colours);
    this.dots(pen, moment, colours);
  }

  // Links that a message has left within the last instants of the film: quick ones would not be seen.
  glow(pen, { tick, trail }, colours) {
    const { messages, source, target } = this.scene;
    if (trail >= tick) return;
    pen.lineWidth = 2;
    for (const i of messages.between(trail, tick, MAX_DOTS)) {
      const ended = messages.begin[i] + messages.lasting[i];
      if (ended > tick) continue;
      pen.globalAlpha = 0.7 * ((ended - trail) / (tick - trail));
      pen.strokeStyle = this.scene.outward(i) ? colours.down : colours.up;
      pen.beginPath();
      pen.moveTo(...this.place(source[i]));
      pen.lineTo(...this.place(target[i]));
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  // The coordinator: a cloud, with a ring while it waits and a filled one when it does not.
  cloud(pen, { waiting }, colours) {
    const [x, y] = this.place(-1);
    const size = Math.max(9, Math.min(15, this.radius * 1.2));
    pen.beginPath();
    for (const [dx, dy, r] of [[-1.2, 0.25, 0.8], [-0.45, -0.55, 0.95], [0.6, -0.35, 0.85], [1.25, 0.3, 0.7], [0, 0.4, 0.9]]) {
      pen.moveTo(x + dx * size + r * size, y + dy * size);
      pen.arc(x + dx * size, y + dy * size, r * size, 0, 2 * Math.PI);
    }
    pen.strokeStyle = colours.text;
    pen.lineWidth = 3.5;
    pen.stroke();
    pen.fillStyle = waiting ? colours.page : colours.rest;
    pen.fill();
    if (this.scene.nodes > 200) return;
    pen.fillStyle = colours.text;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.font = "600 10px system-ui, sans-serif";
    pen.fillText("cloud", x, y);
  }

  agents(pen, { tick, awaited }, colours) {
    const { scene, radius } = this;
    const fills = { [COMPUTES]: colours.busy, [INTERRUPTED]: colours.lost, [AWAY]: colours.away };
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.font = `${radius >= 12 ? 11 : 9.5}px system-ui, sans-serif`;
    for (let node = 0; node < scene.nodes; node += 1) {
      const [x, y] = this.place(node);
      const state = scene.every > 1 ? IDLE : scene.does(node, tick);
      pen.beginPath();
      if (node >= scene.edges) pen.rect(x - radius, y - radius, 2 * radius, 2 * radius);
      else pen.arc(x, y, radius, 0, 2 * Math.PI);
      pen.fillStyle = state === IDLE ? colours.idle : fills[state];
      pen.fill();
      if (scene.every > 1 && scene.busy.length) {
        pen.globalAlpha = scene.busyShare(node, tick);
        pen.fillStyle = colours.busy;
        pen.fill();
        pen.globalAlpha = 1;
      }
      pen.lineWidth = awaited.has(node) ? 4 : radius > 4 ? 1.5 : 0.8;
      pen.strokeStyle = awaited.has(node) ? colours.ring : colours.soft;
      pen.stroke();
      if (scene.nodes > LABELS) continue;
      const filled = state !== IDLE || (scene.every > 1 && scene.busyShare(node, tick) > 0.5);
      pen.fillStyle = filled ? colours.ink : colours.text;
      pen.fillText(node >= scene.edges ? `e${node - scene.edges}` : String(node), x, y + 0.5);
    }
  }

  dots(pen, { tick, under }, colours) {
    const { scene } = this;
    const some = under.length > MAX_DOTS ? under.filter((_, k) => k % Math.ceil(under.length / MAX_DOTS) === 0) : under;
    const size = scene.nodes <= LABELS ? 4 : 2.6;
    for (const down of [true, false]) {
      pen.fillStyle = down ? colours.down : colours.up;
      pen.beginPath();
      for (const i of some) {
        if (scene.lost[i] || scene.outward(i) !== down) continue;
        const [x, y] = this.spot(i, tick);
        pen.moveTo(x + size, y);
        pen.arc(x, y, size, 0, 2 * Math.PI);
      }
      pen.fill();
    }
    pen.strokeStyle = colours.lost;
    pen.lineWidth = 2;
    pen.beginPath();
    for (const i of some) {
      if (!scene.lost[i]) continue;
      const [x, y] = this.spot(i, tick);
      pen.moveTo(x - size, y - size);
      pen.lineTo(x + size, y + size);
      pen.moveTo(x + size, y - size);
      pen.lineTo(x - size, y + size);
    }
    pen.stroke();
  }
}

// A curve over virtual time: what is over strong, what comes pale, and where it is now.
class Chart extends Picture {
  get layers() {
    this.over = this.over || document.createElement("canvas");
    return [...super.layers, this.over];
  }

  show(scene, curve) {
    this.scene = scene;
    this.curve = curve;
    this.stale = true;
    if (!curve) return;
    this.log = false;
    const shown = [...curve.value].filter((v) => this.holds(v) && (!curve.log || v > 0));
    if (curve.spent) shown.push(0); // where it begins
    const [low, high] = shown.length ? [shown.reduce((a, b) => Math.min(a, b)), shown.reduce((a, b) => Math.max(a, b))] : [0, 1];
    this.log = low > 0 && high > (curve.log ? 5 : 1e6) * low; // else what has diverged is all one sees
    const [a, b] = this.log ? [Math.log10(low), Math.log10(high)] : [low, high];
    const room = (b - a || Math.abs(b) || 1) * 0.06;
    this.range = [a - room, b + room];
  }

  // Whether a value has a place: others are of where a run has diverged, or not for a logarithm.
  holds(value) {
    return Math.abs(value) < this.scene.axis_end && !(this.log && value <= 0);
  }

  get frame() {
    return { left: 58, right: this.width - 10, top: 8, bottom: this.height - 22 };
  }

  x(time) {
    const { left, right } = this.frame;
    return left + ((right - left) * time) / (this.scene.end || 1);
  }

  y(value) {
    const { top, bottom } = this.frame;
    const at = this.log ? Math.log10(value) : value;
    return bottom - ((bottom - top) * (at - this.range[0])) / (this.range[1] - this.range[0]);
  }

  timeAt(x) {
    const { left, right } = this.frame;
    return (Math.min(Math.max((x - left) / (right - left), 0), 1)) * this.scene.end;
  }

  // Values that axes are marked at: powers of ten, or round numbers.
  marks() {
    const [low, high] = this.range;
    if (this.log && high - low < 2) {
      const decades = [0, 1, 2].map((k) => 10 ** (Math.floor(low) + k));
      const all = decades.flatMap((one) => [1, 2, 5].map((lead) => lead * one));
      return all.filter((one) => Math.log10(one) >= low && Math.log10(one) <= high);
    }
    const step = this.log ? Math.max(1, Math.ceil((high - low) / 5)) : nextStep((high - low) / 4, true) / 2 || 1;
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high && found.length < 9; at += step) {
      found.push(this.log ? 10 ** at : Number(at.toPrecision(6)));
    }
    return found;
  }

  path(pen, curve) {
    const { value, ticks } = curve;
    let last = null;
    pen.beginPath();
    if (curve.spent) {
      pen.moveTo(this.x(0), this.y(0));
      last = this.y(0);
    }
    for (let i = 0; i < ticks.length; i += 1) {
      if (!this.holds(value[i])) {
        last = null;
        continue;
      }
      const [x, y] = [this.x(this.scene.time(ticks[i])), this.y(value[i])];
      if (last === null) pen.moveTo(x, y);
      else {
        pen.lineTo(x, last);
        pen.lineTo(x, y);
      }
      last = y;
    }
    if (last !== null) pen.lineTo(this.x(this.scene.end), last);
  }

  still(pen, colours) {
    const { curve, frame, scene } = this;
    const { unit, factor } = unitOf(scene.end);
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = colours.soft;
    pen.strokeStyle = colours.grid;
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const value of this.marks()) {
      const y = this.y(value);
      pen.beginPath();
      pen.moveTo(frame.left, y);
      pen.lineTo(frame.right, y);
      pen.stroke();
      const short = value >= 1e-3 && value < 1e5;
      pen.fillText(this.log && !short ? value.toExponential(0).replace("+", "") : numberText(value, curve.percent), frame.left - 6, y);
    }
    pen.textBaseline = "alphabetic";
    const marks = Math.max(2, Math.min(5, Math.floor(this.width / 110)));
    for (let k = 0; k <= marks; k += 1) {
      pen.textAlign = k === 0 ? "left" : k === marks ? "right" : "center";
      const time = (scene.end * k) / marks;
      pen.fillText(`${Number((time * factor).toPrecision(3))}${k === marks ? ` ${unit}` : ""}`, this.x(time), this.height - 6);
    }
    pen.strokeStyle = colours.wire;
    pen.lineWidth = 1.5;
    this.path(pen, curve);
    pen.stroke();
    const over = this.over.getContext("2d");
    over.clearRect(0, 0, this.width, this.height);
    over.strokeStyle = colours.busy;
    over.lineWidth = 2;
    this.path(over, curve);
    over.stroke();
  }

  draw({ time, tick }, colours) {
    if (!this.curve) {
      this.clear();
      return;
    }
    const pen = this.begin((back) => this.still(back, colours));
    const { top, bottom } = this.frame;
    const now = this.x(time);
    const share = now / this.width; // of what is strong, which may be a curve of many rows
    if (share > 0) {
      const { width, height } = this.over;
      pen.drawImage(this.over, 0, 0, width * share, height, 0, 0, now, this.height);
    }
    pen.strokeStyle = colours.text;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(now, top);
    pen.lineTo(now, bottom);
    pen.stroke();
    const value = this.scene.valueAt(this.curve, tick);
    if (value === null || !this.holds(value)) return;
    pen.fillStyle = colours.busy;
    pen.beginPath();
    pen.arc(now, this.y(value), 4, 0, 2 * Math.PI);
    pen.fill();
  }
}

// The timeline: a lane for each agent around the moment, or, of many, how many do what all the time.
class Timeline extends Picture {
  show(scene) {
    this.scene = scene;
    this.lanes = scene.nodes + (scene.hub ? 1 : 0);
    this.crowd = this.lanes > LANES || scene.level !== "all";
    this.whole = this.crowd || scene.every > 1; // all of the time at once
    const lane = Math.max(7, Math.min(20, 420 / Math.max(this.lanes, 1)));
    const high = this.crowd ? 150 : this.lanes * lane + 24;
    this.canvas.style.height = `${Math.round(high)}px`;
    this.fit();
  }

  // From when until when it shows.
  window(time, span) {
    const { end } = this.scene;
    if (this.whole || span >= end) return [0, end || 1];
    const from = Math.min(Math.max(time - 0.6 * span, 0), end - span);
    return [from, from + span];
  }

  draw(moment, colours) {
    if (!this.scene.places) {
      this.clear();
      return;
    }
    this.left = this.crowd ? 44 : Math.min(110, Math.max(34, this.width * 0.12));
    const [from, to] = this.window(moment.time, moment.span);
    this.x = (time) => this.left + ((this.width - this.left - 8) * (time - from)) / (to - from);
    this.bottom = this.height - 20;
    this.high = this.bottom / this.lanes;
    const still = (back) => (this.crowd ? this.many(back, colours) : this.shares(back, colours));
    const pen = this.begin(this.whole ? still : () => {});
    if (!this.crowd) this.names(pen, colours);
    if (!this.whole) this.moving(pen, from, to, colours);
    this.marks(pen, from, to, colours);
    const now = this.x(moment.time);
    pen.strokeStyle = colours.text;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(now, 0);
    pen.lineTo(now, this.bottom + 4);
    pen.stroke();
    this.seen = [from, to];
  }

  // The cloud first, then the edges of a tree, then agents.
  lane(node) {
    const { hub, nodes, edges } = this.scene;
    if (node < 0) return 0;
    return (hub ? 1 : 0) + (node >= edges ? node - edges : node + nodes - edges);
  }

  y(node) {
    return this.lane(node) * this.high;
  }

  names(pen, colours) {
    const { scene, high } = this;
    const every = Math.ceil(11 / high);
    pen.font = `${Math.min(11, high + 1)}px system-ui, sans-serif`;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    pen.fillStyle = colours.text;
    for (let node = scene.hub ? -1 : 0; node < scene.nodes; node += 1) {
      if (this.lane(node) % every) continue;
      const name = node < 0 ? "cloud" : String(scene.names[node]);
      pen.fillText(name.length > 16 ? `${name.slice(0, 15)}…` : name, this.left - 6, this.y(node) + high / 2, this.left - 8);
    }
  }

  // Spans of the lanes, ticks where waits end, and messages from lane to lane.
  moving(pen, from, to, colours) {
    const { scene, high } = this;
    const [low, top] = [scene.tick(from), scene.tick(to)];
    const fills = [colours.busy, colours.lost, colours.away];
    pen.fillStyle = colours.rest;
    pen.fillRect(this.left, 0, this.width - this.left - 8, this.bottom);
    pen.fillStyle = colours.page;
    for (let lane = 0; lane <= this.lanes; lane += 1) pen.fillRect(this.left, lane * high - 0.5, this.width - this.left - 8, 1);
    pen.save();
    pen.beginPath();
    pen.rect(this.left, 0, this.width - this.left - 8, this.bottom);
    pen.clip();
    const pad = Math.min(2, high * 0.15);
    for (let node = 0; node < scene.nodes; node += 1) {
      const begin = Math.max(scene.first[node], upTo(scene.begun, low, scene.first[node], scene.first[node + 1]) - 4);
      let drawn = -1;
      for (let i = begin; i < scene.first[node + 1] && scene.begun[i] < top; i += 1) {
        const ended = this.x(scene.time(scene.begun[i] + scene.lasting[i]));
        if (ended < drawn + 0.4 && scene.state[i] === COMPUTES) continue; // nothing that could be seen
        const x = this.x(scene.time(scene.begun[i]));
        pen.fillStyle = fills[scene.state[i]];
        pen.fillRect(x, this.y(node) + pad, Math.max(ended - x, 0.6), high - 2 * pad);
        drawn = ended;
      }
    }
    this.arrows(pen, low, top, colours);
    pen.fillStyle = colours.text;
    for (const i of scene.waits.between(low, top, MAX_ARROWS)) {
      const ended = this.x(scene.time(scene.opened[i] + scene.open[i]));
      if (scene.waiter[i] < 0) pen.fillRect(ended - 1, 0, 2, high);
    }
    pen.restore();
  }

  arrows(pen, low, top, colours) {
    const { scene, high } = this;
    const all = scene.messages.between(low, top);
    const one = Math.ceil(all.length / MAX_ARROWS); // in so many, the same ones while it moves
    const some = one > 1 ? all.filter((i) => i % one === 0) : all;
    this.drawn = Math.max(one, 1);
    pen.globalAlpha = some.length > 300 ? 0.4 : 0.75;
    pen.lineWidth = 1;
    for (const down of [true, false]) {
      pen.strokeStyle = down ? colours.down : colours.up;
      pen.beginPath();
      for (const i of some) {
        if (scene.outward(i) !== down) continue;
        pen.moveTo(this.x(scene.time(scene.sent[i])), this.y(scene.source[i]) + high / 2);
        pen.lineTo(this.x(scene.time(scene.sent[i] + scene.taking[i])), this.y(scene.target[i]) + high / 2);
      }
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  // Of a sampled run: the share of each bin in which each agent computes.
  shares(pen, colours) {
    const { scene, high } = this;
    const wide = (this.width - this.left - 8) / scene.bins;
    pen.fillStyle = colours.rest;
    pen.fillRect(this.left, 0, this.width - this.left - 8, this.bottom);
    pen.fillStyle = colours.busy;
    for (let node = 0; node < scene.nodes; node += 1) {
      for (let bin = 0; bin < scene.bins; bin += 1) {
        pen.globalAlpha = scene.busy[node * scene.bins + bin] / 255;
        pen.fillRect(this.left + bin * wide, this.y(node) + 1, wide + 0.3, high - 2);
      }
    }
    pen.globalAlpha = 1;
  }

  // How many compute, as an area, and how many messages are on their way, as a line.
  many(pen, colours) {
    const { crowd, end, bin: step } = this.scene;
    if (!crowd[0].length) return;
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "right";
    crowd.forEach((values, kind) => {
      const most = Math.max(...values, 1e-9);
      pen.beginPath();
      pen.moveTo(this.x(0), this.bottom);
      values.forEach((value, bin) => {
        const y = this.bottom - (this.bottom - 14) * (value / most);
        if (kind && !bin) pen.moveTo(this.x(0), y);
        else pen.lineTo(this.x(bin * step), y);
        pen.lineTo(this.x(Math.min((bin + 1) * step, end)), y);
      });
      pen.fillStyle = pen.strokeStyle = kind ? colours.up : colours.busy;
      if (kind) pen.stroke();
      else {
        pen.lineTo(this.x(end), this.bottom);
        pen.fill();
      }
      const said = kind ? "messages on their way, at most" : "agents that compute, at most";
      pen.textAlign = kind ? "right" : "left";
      pen.fillText(`${said} ${Number(most.toPrecision(3))}`, kind ? this.width - 10 : this.left, 10);
    });
  }

  marks(pen, from, to, colours) {
    const { unit, factor } = unitOf(this.scene.end);
    const digits = Math.min(9, Math.max(0, 2 - Math.floor(Math.log10((to - from) * factor))));
    const count = Math.max(2, Math.min(6, Math.floor(this.width / 150)));
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = colours.soft;
    pen.textBaseline = "alphabetic";
    for (let k = 0; k <= count; k += 1) {
      const time = from + ((to - from) * k) / count;
      pen.textAlign = k === 0 ? "left" : k === count ? "right" : "center";
      pen.fillText(`${(time * factor).toFixed(digits)} ${unit}`, this.x(time), this.height - 5);
    }
  }
}
