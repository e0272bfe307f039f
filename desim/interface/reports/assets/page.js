"use strict";
// What the controls of the page do: which curves are shown, against what, in which colours.

const data = JSON.parse(document.getElementById("data").textContent);
const page = { hidden: new Set(), charts: [], bands: false };

function unitOf(x, columns) {
  const last = Math.max(0, ...columns.map((column) => column.findLast((v) => v !== null) || 0));
  const found = UNITS[x] && UNITS[x].find(([end]) => last < end);
  return found ? { unit: found[1], factor: found[2] } : { unit: "", factor: 1 };
}

function named(x, unit) {
  return unit ? `${NAMES[x]} (${unit})` : NAMES[x];
}

// Curves of the runs that are not hidden; pick(run) gives {x, value}, or nothing.
function curvesOf(pick, x, rising) {
  const chosen = data.runs.map((run, number) => ({ run, number, columns: pick(run) }));
  const runs = chosen.filter(({ number, columns }) => columns && columns.x && !page.hidden.has(number));
  const { unit, factor } = unitOf(x, runs.map(({ columns }) => columns.x));
  let curves = runs.map(({ run, number, columns }) => ({
    ...curveOf(run.label, number, columns.x, columns.value, factor), group: run.group, failed: run.failed,
  }));
  curves = curves.filter((one) => (one.failed && page.bands) || one.ys.some((y) => y !== null));
  return { unit, curves: page.bands ? banded(curves, rising) : curves };
}

function banded(curves, rising) {
  const groups = new Map();
  for (const one of curves) groups.set(one.group, [...(groups.get(one.group) || []), one]);
  return [...groups].map(([group, members]) => (members.length > 1
    ? band(data.groups[group], group, members, rising) : { ...members[0], number: group }));
}

function metricShown(root) {
  const metric = data.metrics.find((one) => one.name === root.querySelector("[name=metric]").value);
  const x = root.querySelector("[name=x]:checked").value;
  const pick = ({ curves }) => curves[metric.name] && { x: curves[metric.name][x], value: curves[metric.name].value };
  const { unit, curves } = curvesOf(pick, x, data.rising.includes(metric.name));
  const none = page.hidden.size === data.runs.length;
  return {
    unit, curves, xName: named(x, unit), yName: metric.label.split(":")[0], percent: metric.percent,
    log: root.querySelector("[name=log]").checked, stepped: x !== "round",
    rising: data.rising.includes(metric.name), whole: root.querySelector("[name=whole]").checked,
    empty: none ? "No run is chosen." : `No run shown has ${metric.name} against ${NAMES[x]}.`,
  };
}

function epsilonShown(root) {
  const pick = ({ epsilon }) => epsilon && { x: epsilon.time, value: epsilon.value };
  const { unit, curves } = curvesOf(pick, "time", false);
  return {
    unit, curves, xName: named("time", unit), yName: "epsilon", percent: false, stepped: true, whole: true,
    log: root.querySelector("[name=log]").checked, empty: "No run shown has a finite epsilon.",
  };
}

// What the legend lists: runs, or the groups of runs that differ in the seed only.
function entries() {
  if (!page.bands) return data.runs.map((run, number) => ({ label: run.label, number, runs: [number] }));
  return data.groups.map((label, group) => ({
    label, number: group, runs: data.runs.map((run, number) => (run.group === group ? number : -1)).filter((n) => n >= 0),
  }));
}

function legend(root) {
  const box = root.querySelector(".legend");
  const had = box.contains(document.activeElement) ? document.activeElement.value : null;
  box.replaceChildren(...entries().map(({ label: text, number, runs }) => {
    const label = element("label"), input = element("input"), off = runs.every((run) => page.hidden.has(run));
    input.type = "checkbox";
    input.checked = !off;
    input.value = String(number);
    input.addEventListener("change", () => {
      for (const run of runs) if (input.checked) page.hidden.delete(run); else page.hidden.add(run);
      update();
    });
    label.append(input, swatch(number), element("span", runs.length > 1 ? `${text} (${runs.length} seeds)` : text, off ? "off" : ""));
    return label;
  }));
  if (had !== null) box.querySelector(`[value="${Number(had)}"]`).focus();
}

function update() {
  for (const { root, chart, shown } of page.charts) {
    legend(root);
    chart.draw(shown(root));
  }
}

function startMetric(root) {
  const log = root.querySelector("[name=log]"), metric = root.querySelector("[name=metric]");
  const defaultLog = () => { log.checked = data.metrics.find((one) => one.name === metric.value).log; };
  metric.addEventListener("change", defaultLog);
  defaultLog();
  const any = (x) => data.runs.some((run) => Object.values(run.curves).some((curve) => curve[x]));
  for (const input of root.querySelectorAll("[name=x]")) {
    input.disabled = !any(input.value) || (input.value === "epsilon" && !data.comparable);
    if (input.disabled) input.closest("label").title = "not recorded, infinite, or in different terms";
  }
  const bands = root.querySelector("[data-bands]"), box = bands.querySelector("input");
  bands.hidden = data.groups.length === data.runs.length;
  box.checked = page.bands = !bands.hidden;
  box.addEventListener("change", () => { page.bands = box.checked; page.hidden.clear(); update(); });
}

// How far apart the runs' final epsilons are, as a ratio.
function spread() {
  const ends = data.runs.map(({ epsilon }) => (epsilon ? epsilon.value.at(-1) : 0)).filter((value) => value > 0);
  return ends.length ? Math.max(...ends) / Math.min(...ends) : 1;
}

function start() {
  const kinds = { metric: metricShown, epsilon: epsilonShown };
  for (const root of document.querySelectorAll(".chart")) {
    const shown = kinds[root.dataset.kind], controls = root.querySelector(".controls");
    controls.hidden = false;
    if (root.dataset.kind === "metric") startMetric(root);
    else root.querySelector("[name=log]").checked = spread() > 100;
    const chart = new Chart(root);
    page.charts.push({ root, chart, shown });
    controls.addEventListener("change", () => chart.draw(shown(root)));
  }
  update();
}

function startTheme() {
  const choice = document.getElementById("theme");
  const stored = () => { try { return localStorage.getItem("desim-theme"); } catch { return null; } };
  const store = (value) => { try { localStorage.setItem("desim-theme", value); } catch { /* a page without storage */ } };
  const apply = (value) => {
    if (value) document.documentElement.dataset.theme = value;
    else delete document.documentElement.dataset.theme;
  };
  choice.closest("label").hidden = false;
  choice.value = ["light", "dark"].includes(stored()) ? stored() : "";
  apply(choice.value);
  choice.addEventListener("change", () => { store(choice.value); apply(choice.value); update(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", update);
}

startTheme();
start();
