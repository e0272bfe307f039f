"use strict";
// What is so at a moment of virtual time: the arrays of a scene, searched by halving.
// Times are ticks, TICKS of them from the start to the end of the log; a message is on its way from
// `sent` on and no more when it has taken `taking`. What goes on when a growing log ends lasts for a
// tick more.

const TICKS = 4294967294;
const BLOCK = 256; // rows of which the latest end is known, so that they can be passed over
const IDLE = -1, COMPUTES = 0, INTERRUPTED = 1, AWAY = 2;
const KINDS = { u4: Uint32Array, i4: Int32Array, u1: Uint8Array, f8: Float64Array };

// An array from its letters: compressed bytes, all first ones, all second ones, ...; of differences
// the running sum, which overflows as theirs did.
async function unpacked({ kind, n, running, data }) {
  const letters = atob(data);
  const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const values = new KINDS[kind](n);
  const size = values.BYTES_PER_ELEMENT;
  if (kind === "f8") { // as machines have them, the least byte first
    const whole = Uint8Array.from(planes, (_, at) => planes[(at % size) * n + Math.floor(at / size)]);
    const from = new DataView(whole.buffer);
    for (let i = 0; i < n; i += 1) values[i] = from.getFloat64(i * size, true);
    return values;
  }
  for (let i = 0; i < n; i += 1) {
    let value = 0;
    for (let k = size - 1; k >= 0; k -= 1) value = value * 256 + planes[k * n + i];
    values[i] = running && i ? values[i - 1] + value : value;
  }
  return values;
}

// How many of the ascending values between two places are no larger.
function upTo(values, value, first = 0, last = values.length) {
  while (first < last) {
    const middle = (first + last) >>> 1;
    if (values[middle] <= value) first = middle + 1;
    else last = middle;
  }
  return first;
}

// Rows that begin in order and last: which of them are open at a tick.
class Lasting {
  constructor(begin, lasting) {
    this.begin = begin;
    this.lasting = lasting;
    this.latest = new Float64Array(Math.ceil(begin.length / BLOCK));
    for (let i = 0; i < begin.length; i += 1) {
      const block = Math.floor(i / BLOCK);
      this.latest[block] = Math.max(this.latest[block], begin[i] + lasting[i]);
    }
  }

  // Rows that have begun by `to`, and not ended by `from`: the latest ones, if there are more.
  between(from, to, most = Infinity) {
    const found = [];
    const last = upTo(this.begin, to);
    for (let block = Math.ceil(last / BLOCK) - 1; block >= 0 && found.length < most; block -= 1) {
      if (this.latest[block] <= from) continue;
      for (let i = Math.min(last, (block + 1) * BLOCK) - 1; i >= block * BLOCK; i -= 1) {
        if (this.begin[i] + this.lasting[i] > from) found.push(i);
        if (found.length >= most) break;
      }
    }
    return found;
  }

  at(tick) {
    return this.between(tick, tick);
  }

  // The share of row i that is over.
  share(i, tick) {
    return this.lasting[i] ? (tick - this.begin[i]) / this.lasting[i] : 1;
  }
}

// A scene whose arrays can be searched. What a log has left out is empty.
class Scene {
  static async of(data) {
    const names = Object.keys(data.arrays || {});
    const arrays = await Promise.all(names.map((name) => unpacked(data.arrays[name])));
    const { privacy } = data;
    const spent = privacy.ticks ? [{ ...privacy, name: "epsilon", label: "epsilon", log: false, spent: true }] : [];
    const curves = await Promise.all([...data.curves, ...spent].map(async (curve) => (
      { ...curve, ticks: await unpacked(curve.ticks), value: await unpacked(curve.value) })));
    return new Scene({ ...data, curves }, Object.fromEntries(names.map((name, k) => [name, arrays[k]])));
  }

  constructor(data, arrays) {
    Object.assign(this, data);
    for (const name of ["sent", "taking", "source", "target", "lost", "begun", "lasting", "who", "state",
      "opened", "open", "waiter", "closer", "round", "over", "busy"]) this[name] = arrays[name] || new Uint32Array(0);
    this.end = data.end || 0;
    this.nodes = data.nodes || 0;
    this.messages = new Lasting(this.sent, this.taking);
    this.waits = new Lasting(this.opened, this.open);
    this.first = new Uint32Array(this.nodes + 1); // where the spans of each agent begin
    for (let agent = 0; agent <= this.nodes; agent += 1) this.first[agent] = upTo(this.who, agent - 1);
  }

  tick(time) {
    return this.end ? Math.round(Math.min(Math.max(time / this.end, 0), 1) * TICKS) : TICKS;
  }

  time(tick) {
    return (tick / TICKS) * this.end;
  }

  // What an agent does: absences hide what else there is.
  does(agent, tick) {
    const last = upTo(this.begun, tick, this.first[agent], this.first[agent + 1]) - 1;
    let found = IDLE;
    for (let i = last; i >= Math.max(this.first[agent], last - 3); i -= 1) {
      if (this.begun[i] + this.lasting[i] <= tick) continue;
      if (this.state[i] === AWAY) return AWAY;
      if (found === IDLE) found = this.state[i];
    }
    return found;
  }

  // The share of the bin around a moment in which an agent computes; of sampled runs.
  busyShare(agent, tick) {
    const bin = Math.min(Math.floor((tick / TICKS) * this.bins), this.bins - 1);
    return this.busy[agent * this.bins + bin] / 255 || 0;
  }

  // Whether a message goes away from the coordinator, or down a tree.
  outward(i) {
    return this.source[i] < 0 || (this.source[i] >= this.edges && this.target[i] >= 0 && this.target[i] < this.source[i]);
  }

  // How many rounds are over, and the ticks at which the ones before and after a moment were.
  rounds(tick) {
    return this.done(upTo(this.over, tick));
  }

  done(rounds) {
    return rounds ? this.round[rounds - 1] : 0;
  }

  before(tick) {
    const place = upTo(this.over, tick - 1);
    return place ? this.over[place - 1] : 0;
  }

  after(tick) {
    const place = upTo(this.over, tick);
    return place < this.over.length ? this.over[place] : TICKS;
  }

  // Who waits for whom: of waits that are over by the end it is known who closed them; of one that is
  // open at the end, who was called and not heard. At the end of a run nobody waits any more.
  awaitedAt(tick) {
    const known = this.waits.at(tick).map((i) => ({ agent: this.waiter[i], closer: this.closer[i] }));
    const open = this.hub && !known.some(({ agent }) => agent < 0) && tick >= this.edge && (this.plays || tick < TICKS);
    if (!open) return known;
    const more = this.awaited.map(([agent, closer]) => ({ agent, closer }));
    return [...known, ...more.filter(({ agent }) => !known.some((one) => one.agent === agent))];
  }

  // From when on the coordinator's wait is not over: when its last one was.
  get edge() {
    return this.over && this.over.length ? this.over[this.over.length - 1] : 0;
  }

  // The value of a curve at a tick: that of its latest row, null before the first. Ticks, as ends of
  // rounds are ticks.
  valueAt(curve, tick) {
    const place = upTo(curve.ticks, tick) - 1;
    if (place < 0) return curve.spent ? 0 : null;
    return curve.value[place];
  }
}

// Numbers as people read them.
const UNITS = [[1e-3, "µs", 1e6], [1, "ms", 1e3], [600, "s", 1], [10800, "min", 1 / 60], [864000, "h", 1 / 3600],
  [Infinity, "d", 1 / 86400]];

function unitOf(end) {
  const [, unit, factor] = UNITS.find(([below]) => end < below);
  const digits = end > 0 ? Math.max(0, 3 - Math.floor(Math.log10(end * factor))) : 0;
  return { unit, factor, digits: Math.min(digits, 6) };
}

function timeText(time, { unit, factor, digits }) {
  return `${(time * factor).toFixed(digits)} ${unit}`;
}

function numberText(value, percent = false) {
  if (!Number.isFinite(value)) return "not finite";
  const shown = percent ? 100 * value : value;
  return `${Number(shown.toPrecision(4))}${percent ? " %" : ""}`;
}

// Real time: 42 s, 3 min 20 s, 2 h 5 min.
function durationText(seconds) {
  const whole = Math.max(Math.round(seconds), 0);
  const minutes = Math.floor(whole / 60);
  if (!minutes) return `${whole} s`;
  return minutes < 60 ? `${minutes} min ${whole % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function brief(time) {
  const { unit, factor } = unitOf(time);
  return `${Number((time * factor).toPrecision(3))} ${unit}`;
}

// The next of 1, 2, 5, 10, 20, ... below or above.
function nextStep(value, up) {
  const power = 10 ** Math.floor(Math.log10(value) + 1e-9);
  const lead = value / power;
  if (up) return power * [2, 5, 10].find((one) => one > lead + 1e-6);
  return lead > 1 + 1e-6 ? power * [5, 2, 1].find((one) => one < lead - 1e-6) : power / 2;
}
