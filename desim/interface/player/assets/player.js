"use strict";
// The page: controls, keys, what is said in words, the film, and, while a run plays, what is new.

const $ = (id) => document.getElementById(id);
const STEPS = 100000; // of the slider
const TRAIL = 0.2; // s of the film for which a link glows when a message has passed
const POLL = 1000; // ms between two questions whether there is something new
const NAMES = 8; // agents that a sentence names
const still = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");

const view = {
  scene: null, time: 0, playing: false, speed: 1, span: 1, following: false, curve: 0, frames: 0,
  dirty: true, last: 0, said: 0, told: -Infinity, stepped: 0, pace: 0, colours: palette(), moment: null,
};
const pictures = { map: new NetworkMap($("map")), chart: new Chart($("chart")), timeline: new Timeline($("timeline")) };

// Words.

function setText(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
}

// Agents by their numbers and sites, edges, the cloud; of many the first ones.
function listed(nodes) {
  if (!nodes.length) return "nobody";
  const { names, edges } = view.scene;
  const some = nodes.slice(0, NAMES);
  const agents = some.filter((node) => node >= 0 && node < edges).map((node) => names[node] ?? node);
  const others = some.filter((node) => node < 0 || node >= edges).map((node) => (node < 0 ? "the cloud" : names[node]));
  const words = [...(agents.length ? [`agent${agents.length > 1 ? "s" : ""} ${agents.join(", ")}`] : []), ...others];
  return words.join(", ") + (nodes.length > NAMES ? ` and ${nodes.length - NAMES} more` : "");
}

function awaitedText({ waits, scene, time }) {
  if (scene.level === "rounds") return "not in the log";
  if (scene.every > 1 && !scene.waits.begin.length) return "sampled: see the table below";
  if (scene.plays && !scene.hub && !waits.length && time >= scene.end) return "not known before waits are over";
  const closers = [...new Set(waits.map(({ closer }) => closer))];
  const agents = closers.filter((one) => one >= 0 || one === -1).sort((a, b) => a - b);
  const parts = agents.length ? [listed(agents)] : [];
  if (closers.includes(-2)) parts.push("the deadline");
  if (closers.includes(-3)) parts.push("nobody's message, own work");
  if (!parts.length) return "nobody";
  const who = [...new Set(waits.map(({ agent }) => agent))].sort((a, b) => a - b);
  return `${parts.join("; ")} (by ${listed(who)})`;
}

function computingText({ computing, vain, scene, tick }) {
  if (scene.level !== "all") return "not in the log";
  if (scene.every > 1) {
    const bin = Math.min(Math.floor((tick / TICKS) * scene.crowd[0].length), scene.crowd[0].length - 1);
    return `${Number(scene.crowd[0][bin].toPrecision(3))} of ${scene.agents} on average`;
  }
  const many = computing.length > NAMES ? `${computing.length} of ${scene.agents}: ` : "";
  return `${many}${listed(computing)}${vain.length ? `; in vain, as it will be interrupted: ${listed(vain)}` : ""}`;
}

function messagesText({ under, scene, time }) {
  if (scene.level === "rounds") return "not in the log";
  const sampled = scene.every > 1 ? ` drawn, one in ${scene.every}` : "";
  const drawn = under.length > MAX_DOTS ? `, ${MAX_DOTS} of them drawn` : "";
  const ahead = scene.plays && time >= scene.end && scene.sent_left ? `; ${scene.sent_left} more when the log ends` : "";
  return `${under.length} message${under.length === 1 ? "" : "s"}${sampled}${drawn}${ahead}`;
}

function curveText(moment) {
  const curve = view.scene.curves[view.curve];
  if (!curve) return "none recorded";
  const { scene } = view;
  const value = scene.valueAt(curve, moment.tick);
  if (value === null) return "not measured yet";
  // Of a run that plays events may be stored some seconds before what was measured meanwhile.
  const old = scene.plays && !curve.spent && scene.rounds(moment.tick) > curve.turns
    && moment.tick >= curve.ticks[curve.ticks.length - 1];
  return `${numberText(value, curve.percent)}${old ? `, in round ${curve.turns}` : ""}`;
}

function epsilonText(moment) {
  const { privacy, curves } = view.scene;
  const spent = curves.find((one) => one.spent);
  if (!spent) return privacy.said;
  const { until } = privacy; // of a run that plays: it is known less often than the rest
  const old = until !== undefined && moment.time > until ? `, by ${timeText(until, unitOf(view.scene.end))}` : "";
  return `${numberText(view.scene.valueAt(spent, moment.tick))}${old}`;
}

function facts(moment) {
  const { scene } = view;
  const unit = unitOf(scene.end);
  const clock = `${timeText(moment.time, unit)} of ${timeText(scene.end, unit)}`;
  const last = scene.done(scene.over.length);
  setText("clock", clock);
  setText("f-time", clock);
  setText("f-round", last ? `${scene.rounds(moment.tick)} of ${last} over` : "none is over");
  setText("f-metric", curveText(moment));
  setText("f-epsilon", epsilonText(moment));
  setText("f-computing", computingText(moment));
  setText("f-awaited", awaitedText(moment));
  setText("f-messages", messagesText(moment));
  const place = String(scene.end ? Math.round((STEPS * moment.time) / scene.end) : 0);
  if ($("time").value !== place) $("time").value = place;
  $("time").setAttribute("aria-valuetext", `${clock}, round ${scene.rounds(moment.tick)}`);
}

// For readers of the screen: where it stands, when it was stopped or moved, and now and then.
function say(moment) {
  const { scene } = view;
  const curve = scene.curves[view.curve];
  const metric = curve ? `, ${curve.label} ${curveText(moment)}` : "";
  setText("said", `${timeText(moment.time, unitOf(scene.end))}, round ${scene.rounds(moment.tick)}${metric}, `
    + `waited for: ${awaitedText(moment)}`);
  view.said = performance.now();
}

// The film.

function momentAt(time) {
  const { scene } = view;
  const tick = scene.tick(time);
  const trail = scene.tick(Math.max(time - (view.playing && !still.matches ? TRAIL * view.pace : 0), 0));
  const under = scene.messages.at(tick);
  const waits = scene.awaitedAt(tick);
  const computing = [];
  const vain = [];
  for (let agent = 0; scene.every === 1 && agent < scene.nodes; agent += 1) {
    const state = scene.does(agent, tick);
    if (state === COMPUTES || state === INTERRUPTED) computing.push(agent);
    if (state === INTERRUPTED) vain.push(agent);
  }
  return {
    scene, time, tick, trail, under, waits, computing, vain, span: view.span,
    awaited: new Set(waits.map(({ closer }) => closer)), waiting: waits.some(({ agent }) => agent < 0),
  };
}

function draw(now) {
  const moment = momentAt(view.time);
  for (const one of Object.values(pictures)) one.draw(moment, view.colours);
  const later = view.playing && now - view.told <= 100; // words are read, not watched
  if (!later) {
    facts(moment);
    shown();
    view.told = now;
  }
  if (view.playing && now - view.said > 10000) say(moment);
  view.moment = moment;
  view.frames += 1;
  view.dirty = later;
}

function frame(now) {
  const passed = Math.min((now - view.last) / 1000, 0.25);
  view.last = now;
  const { scene } = view;
  if (scene && view.playing && !(still.matches && now - view.stepped < 1000)) {
    const step = still.matches ? 1 : passed; // no motion: a step each second
    view.stepped = now;
    const ahead = scene.end - view.time;
    const gap = view.following ? ahead * (still.matches ? 1 : 1 - Math.exp(-passed / 1.5)) : view.speed * step;
    view.pace = step > 0 ? gap / step : 0; // virtual seconds of one on the wall
    view.time = Math.min(view.time + gap, scene.end);
    view.dirty = view.dirty || gap > 0;
    if (view.time >= scene.end && !scene.plays) play(false);
  }
  if (scene && view.dirty) draw(now);
  requestAnimationFrame(frame);
}

function play(on) {
  view.playing = on && view.scene.end > 0;
  if (view.playing && view.time >= view.scene.end && !view.scene.plays) view.time = 0;
  view.stepped = 0;
  setText("play", view.playing ? "Pause" : "Play");
  view.dirty = true;
  if (!view.playing) say(momentAt(view.time));
}

function jump(time) {
  view.time = Math.min(Math.max(time, view.scene.since || 0), view.scene.end);
  if (view.time < view.scene.end) follow(false);
  view.dirty = true;
  if (!view.playing) say(momentAt(view.time));
}

function follow(on) {
  view.following = on && view.scene.plays;
  $("follow").checked = view.following;
  if (view.following && !view.playing) play(true);
}

function setSpeed(speed) {
  const { end } = view.scene;
  view.speed = end ? Math.min(Math.max(speed, end / 1e7), end) : 1;
  setText("speed", `${brief(view.speed)} a second`);
}

// To the end of the round before or after.
function turn(forth) {
  const { scene } = view;
  const tick = scene.tick(view.time);
  if (!scene.over.length) jump(view.time + (forth ? 0.05 : -0.05) * scene.end);
  else jump(scene.time(forth ? scene.after(tick) : scene.before(tick)));
}

function widen(factor) {
  view.span = Math.min(Math.max(view.span * factor, view.scene.end / 1e6), view.scene.end || 1);
  view.dirty = true;
}

function shown() {
  const { whole, crowd, drawn } = pictures.timeline;
  setText("shown", whole ? (crowd ? "how many do what, all the time" : "share of the time that each computes")
    : `${brief(Math.min(view.span, view.scene.end))} of ${brief(view.scene.end)}; lines are messages${drawn > 1 ? `, one in ${drawn}` : ""}`);
  for (const id of ["wider", "narrower"]) $(id).hidden = whole;
}

// A scene is shown; `first`: with the usual speed, from its beginning.

function choose(number) {
  view.curve = Number(number);
  const curve = view.scene.curves[view.curve];
  setText("f-name", curve ? curve.label : "Metric");
  pictures.chart.show(view.scene, curve);
  view.dirty = true;
}

function rowsOf(id, make, items) {
  $(id).replaceChildren(...items.map(make));
}

function element(name, text, ...inner) {
  const made = document.createElement(name);
  made.textContent = text;
  made.append(...inner);
  return made;
}

function words() {
  const { scene } = view;
  setText("name", scene.name);
  setText("reason", scene.reason);
  document.querySelector(".badge").textContent = scene.status;
  setText("how", scene.how || "");
  const { terms, why } = scene.privacy;
  setText("f-terms", [why, terms].filter(Boolean).join("; "));
  const closers = scene.closers && scene.closers.length ? scene.closers : [["no wait was logged", "", ""]];
  rowsOf("closers", ([name, ...cells]) => {
    const head = element("th", name);
    head.scope = "row";
    return element("tr", "", head, ...cells.map((cell) => element("td", cell)));
  }, closers);
  const said = [...scene.notes, ...scene.privacy.doubts];
  rowsOf("notes", (text) => element("li", text), said.length ? said : ["Nothing."]);
  left();
  $("follow-label").hidden = !scene.plays;
  $("trouble").hidden = !scene.trouble;
  setText("trouble", scene.trouble || "");
}

// How long the run will take from now on: the server says when it will be over.
function left() {
  const { left: text, over_at: over } = view.scene;
  $("left-row").hidden = !text;
  const rest = over - Date.now() / 1000;
  const late = over !== null && rest <= 0; // what the run has stored since is not read yet
  setText("f-left", late ? text.replace("about {}", "over by now, if all went on so") : text.replace("{}", durationText(rest)));
}

function usual() {
  const { scene } = view;
  const rounds = scene.done(scene.over.length) || 1;
  setSpeed(nextStep((scene.end || 1) / Math.min(Math.max(rounds, 20), 90), false));
  if (still.matches) setSpeed(nextStep(view.speed, false)); // a step is shorter than a round
  view.span = Math.min(scene.end || 1, (6 * (scene.end || 1)) / rounds);
  view.time = scene.plays ? scene.end : 0;
}

async function show(data) {
  const first = view.scene === null;
  const other = !first && view.scene.run !== data.run; // the next one of a study, or in its place
  const empty = first || other || !view.scene.end; // of a run that has stored nothing there is nothing to follow
  const chosen = first ? null : (view.scene.curves[view.curve] || {}).name;
  view.scene = await Scene.of(data);
  view.time = Math.max(view.time, view.scene.since || 0); // a quick run leaves behind who follows it
  words();
  pictures.map.show(view.scene);
  pictures.timeline.show(view.scene);
  $("play").disabled = !view.scene.end;
  const { curves } = view.scene;
  const options = curves.map(({ label }, k) => Object.assign(element("option", label), { value: k }));
  $("curve").replaceChildren(...options);
  const place = Math.max(curves.findIndex(({ name }) => name === chosen), 0);
  $("curve").value = String(place);
  $("curve").hidden = !curves.length;
  choose(place);
  if (empty) {
    usual();
    follow(first || other || view.following);
  }
  if (first) requestAnimationFrame(frame);
  if (!view.scene.plays && view.following) {
    view.following = false;
    view.time = view.scene.end;
    play(false);
  }
  view.dirty = true;
}

// Of a run that plays: what is new, until the server has ended.
async function ask(seen) {
  let version = seen;
  let gone = false;
  for (;;) {
    await new Promise((after) => setTimeout(after, POLL));
    left();
    try {
      const answer = await fetch(`scene?since=${version}`, { cache: "no-store" });
      const data = answer.ok ? await answer.json() : null;
      if (data) {
        version = data.version_seen;
        await show(data);
      } else if (gone) words();
      gone = false;
    } catch (error) {
      gone = true;
      $("trouble").hidden = false;
      setText("trouble", "The process that watches has ended: this page shows what it has.");
    }
  }
}

// Keys and buttons.

function pointed(canvas, act) {
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    act(event.offsetX);
  });
  canvas.addEventListener("pointermove", (event) => event.buttons && act(event.offsetX));
}

// The moment of the row of the curve that is nearest: when a round was measured.
function pick(x) {
  const { ticks } = view.scene.curves[view.curve] || { ticks: [] };
  const asked = view.scene.tick(pictures.chart.timeAt(x));
  const place = upTo(ticks, asked);
  const near = [ticks[place - 1], ticks[place]].filter((one) => one !== undefined);
  near.sort((a, b) => Math.abs(a - asked) - Math.abs(b - asked));
  if (near.length) jump(view.scene.time(near[0]));
}

const KEYS = {
  " ": () => play(!view.playing), ArrowLeft: () => turn(false), ArrowRight: () => turn(true),
  Home: () => jump(0), End: () => jump(view.scene.end), "+": () => setSpeed(nextStep(view.speed, true)),
  "=": () => setSpeed(nextStep(view.speed, true)), "-": () => setSpeed(nextStep(view.speed, false)),
  "[": () => widen(2), "]": () => widen(0.5),
};

function pressed(event) {
  if (!view.scene || event.ctrlKey || event.metaKey || event.altKey) return;
  const inside = event.target.tagName;
  if (inside === "SELECT" || (event.key === " " && ["BUTTON", "INPUT"].includes(inside) && event.target.id !== "time")) return;
  const small = event.shiftKey && ["ArrowLeft", "ArrowRight"].includes(event.key);
  if (!small && !KEYS[event.key]) return;
  event.preventDefault();
  if (small) jump(view.time + (event.key === "ArrowRight" ? 1 : -1) * 0.02 * view.span);
  else KEYS[event.key]();
}

function wire() {
  document.addEventListener("keydown", pressed);
  const clicks = {
    play: " ", back: "ArrowLeft", forth: "ArrowRight", slower: "-", faster: "+", wider: "[", narrower: "]",
  };
  for (const [id, key] of Object.entries(clicks)) $(id).addEventListener("click", () => KEYS[key]());
  $("time").addEventListener("input", () => jump((view.scene.end * Number($("time").value)) / STEPS));
  $("follow").addEventListener("change", () => follow($("follow").checked));
  $("curve").addEventListener("change", () => choose($("curve").value));
  pointed($("chart"), pick);
  pointed($("timeline"), (x) => {
    const { left, width, seen } = pictures.timeline;
    jump(seen[0] + ((seen[1] - seen[0]) * (x - left)) / (width - left - 8));
  });
  dark.addEventListener("change", () => {
    view.colours = palette();
    for (const one of Object.values(pictures)) one.stale = true;
    view.dirty = true;
  });
  new ResizeObserver(() => {
    for (const one of Object.values(pictures)) one.fit();
    view.dirty = true;
  }).observe(document.body);
}

// What tests read: copies, by which nothing can be changed.
function state() {
  const { moment, scene } = view;
  const dots = moment.under.map((i) => {
    const [x, y] = pictures.map.spot(i, moment.tick);
    return { source: scene.source[i], target: scene.target[i], share: scene.messages.share(i, moment.tick), x, y };
  });
  return {
    time: view.time, end: scene.end, playing: view.playing, following: view.following, speed: view.speed,
    round: scene.rounds(moment.tick), dots, computing: [...moment.computing], waits: moment.waits.map((one) => ({ ...one })),
    frames: view.frames, epsilon: $("f-epsilon").textContent, metric: $("f-metric").textContent,
    nodes: Array.from({ length: scene.nodes }, (_, node) => pictures.map.place(node)), status: scene.status,
  };
}

const given = JSON.parse($("data").textContent);
wire();
show(given).then(() => {
  Object.defineProperty(window, "player", { value: Object.freeze({ state }) });
  if (given.asks) ask(given.version_seen);
});
