"use strict";
// What the controls of the page do: which curves are shown, against what, in which colours.

const data = JSON.parse(document.getElementById("data").textContent);
const page = { hidden: new Set(), charts: [] };

function unitOf(x, runs, columns) {
  const last = Math.max(0, ...runs.map((run) => Math.max(0, ...columns(run).filter((v) => v !== null).slice(-1))));
  const found = UNITS[x] && UNITS[x].find(([end]) => last < end);
  return found ? { unit: found[1], factor: found[2] } : { unit: "", factor: 1 };
}

function named(x, unit) {
  return unit ? `${NAMES[x]} (${unit})` : NAMES[x];
}

function visible() {
  return data.runs.map((run, number) => ({ ...run, number })).filter((run) => !page.hidden.has(run.number));
}

function metricShown(root) {
  const metric = data.metrics.find((one) => one.name === root.querySelector("[name=metric]").value);
  const x = root.querySelector("[name=x]:checked").value;
  const runs = visible().filter((run) => run.curves[metric.name] && run.curves[metric.name][x]);
  const { unit, factor } = unitOf(x, runs, (run) => run.curves[metric.name][x]);
  let curves = runs.map((run) => {
    const curve = run.curves[metric.name];
    return { ...curveOf(run.label, run.number, curve[x], curve.value, factor), group: run.group };
  });
  curves = curves.filter((one) => one.ys.some((y) => y !== null));
  if (root.querySelector("[name=bands]").checked) curves = banded(curves);
  const empty = page.hidden.size === data.runs.length ? "No run is chosen." : `No run shown has ${metric.label} against ${NAMES[x]}.`;
  return {
    x, unit, xName: named(x, unit), yName: metric.label.split(":")[0], percent: metric.percent,
    log: root.querySelector("[name=log]").checked, stepped: x !== "round", curves, empty,
  };
}

function banded(curves) {
  const groups = new Map();
  for (const one of curves) groups.set(one.group, [...(groups.get(one.group) || []), one]);
  return [...groups.values()].map((members) => (members.length > 1 ? band(members) : members[0]));
}

function epsilonShown(root) {
  const runs = visible().filter((run) => run.epsilon);
  const { unit, factor } = unitOf("time", runs, (run) => run.epsilon.time);
  const curves = runs.map((run) => curveOf(run.label, run.number, run.epsilon.time, run.epsilon.value, factor));
  return {
    x: "time", unit, xName: named("time", unit), yName: "epsilon", percent: false, curves, stepped: true,
    log: root.querySelector("[name=log]").checked, empty: "No run shown has a finite epsilon.",
  };
}

function legend(root) {
  const box = root.querySelector(".legend");
  const had = box.contains(document.activeElement) ? document.activeElement.value : null;
  box.replaceChildren(...data.runs.map((run, number) => {
    const label = element("label"), input = element("input"), off = page.hidden.has(number);
    input.type = "checkbox";
    input.checked = !off;
    input.value = String(number);
    input.addEventListener("change", () => {
      if (input.checked) page.hidden.delete(number); else page.hidden.add(number);
      update();
    });
    label.append(input, swatch(number), element("span", run.label, off ? "off" : ""));
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
  const groups = data.runs.map((run) => run.group);
  const bands = root.querySelector("[data-bands]");
  bands.hidden = new Set(groups).size === groups.length;
  bands.querySelector("input").checked = !bands.hidden;
}

function start() {
  const kinds = { metric: metricShown, epsilon: epsilonShown };
  for (const root of document.querySelectorAll(".chart")) {
    root.querySelector(".controls").hidden = false;
    if (root.dataset.kind === "metric") startMetric(root);
    const chart = new Chart(root, page);
    page.charts.push({ root, chart, shown: kinds[root.dataset.kind] });
    root.querySelector(".controls").addEventListener("change", () => chart.draw(kinds[root.dataset.kind](root)));
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
