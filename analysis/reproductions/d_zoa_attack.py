"""D-ZOA's intrinsic privacy, attacked: what one message tells, and what `desim audit` says.

Agent 1 has the record x = e_1, y = c + .45 or c - .45, c being what its model says: both have
gradients of norm .9 <= c1 = 1 there. Its message is drawn DRAWS times with either; a linear score
is trained on some and tested on others. The same attack on an exact minimiser with Gaussian noise
of the same epsilon is the control: it must not be refuted.
python -m analysis.reproductions d_zoa_attack
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

from analysis.reproductions import page
from analysis.reproductions.d_zoa_setting import C1, REGULARIZERS, RHO, ROUNDS, Level, samples
from analysis.reproductions.monte_carlo import SCENARIOS, Case, MonteCarlo, simulations
from analysis.reproductions.zcdp_nfl_errors import minimiser
from desim.arrays import Array
from desim.engine.play import Simulation
from desim.experiments.audit.neighbours import replaced
from desim.experiments.audit.of_method import audit, trained
from desim.experiments.audit.verdict import Claim, judge
from desim.interface.plots import COLOURS, Axes
from desim.methods.d_zoa import schedule
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.privacy.accounting.gaussian import epsilon_of, mu_of
from desim.privacy.papers.d_zoa import lemma_3
from desim.problem.kernels.gradients import gradient
from desim.problem.kernels.zeroth import descend
from desim.problem.problem import Problem

NAME = "d_zoa_attack"
SETS = 1
AGENT, HALF = 0, 0.45
RISK = 0.05
DRAWS, MOST = 16_000, 10_000
POINTS = np.linspace(-1.0, 1.0, 161)
Row = dict[str, Any]
CASES = (
    ("ridge", "first", Level(0.15), DRAWS),
    ("ridge", "at the optimum", Level(0.15), DRAWS),
    ("lasso", "first", Level(0.15), DRAWS // 8),
    ("lasso", "at the optimum", Level(0.15), DRAWS // 8),
    ("ridge", "at the optimum", Level(0.95), DRAWS // 32),
)
AUDITS = {"d-zoa-audited": "as printed", "d-zoa-with-noise": "with noise on the differences"}
RUNS = 400  # of an audit, on either side


def shifts(made: Simulation, where: str) -> tuple[Array, float]:
    """(c (1, dim), q): agent AGENT minimises f + <c, x> + q/2 ||x||^2 in the first or last round.

    At the optimum w* all models are w*, and the dual is what makes w* the agent's minimiser.
    """
    problem, graph = made.problem, made.settings.graph
    assert graph is not None
    q = 2.0 * RHO * float(graph.degree[AGENT])
    if where == "first":
        return np.zeros((1, problem.dim)), q
    best = minimiser(made.problem)
    data = problem.data._replace(ridge=np.zeros(problem.agents), lasso=np.zeros(problem.agents))
    slopes = gradient(np.arange(problem.agents), np.tile(best, (problem.agents, 1)), data)
    return (slopes.mean(axis=0) - slopes[AGENT] - q * best)[None], q


def argmin(problem: Problem, c: Array, q: float, steps: int = 3000) -> Array:
    """The exact minimiser (dim,), by the proximal gradient method."""
    rows = slice(*problem.spans()[AGENT])
    A, b, m = problem.A[rows], problem.b[rows], problem.rows[AGENT]
    H, whole = 2.0 / m * A.T @ A + q * np.eye(problem.dim), problem.agent_regularizer
    t, x = 1.0 / float(np.linalg.eigvalsh(H)[-1]), np.zeros(problem.dim)
    own = replace(whole, l1=whole.l1 / problem.agents, l2=whole.l2 / problem.agents)
    for _ in range(steps):
        x = own.prox(x - t * (H @ x - 2.0 / m * A.T @ b + c[0]), t)
    return np.asarray(x)


def neighbours(problem: Problem, c: Array, q: float) -> tuple[Problem, Problem]:
    """The problem with either record; c of the docstring is the model without a third one."""
    e = np.eye(problem.dim)[0]
    middle = 0.0
    for _ in range(5):
        middle = float(argmin(replaced(problem, AGENT, 0, (e, middle)), c, q, 500)[0])
    low, high = (replaced(problem, AGENT, 0, (e, middle + half)) for half in (-HALF, HALF))
    return low, high


def messages(
    made: Simulation, problem: Problem, J: int, n: int, side: int, c: Array, q: float
) -> Array:
    """Messages (n, dim) with directions drawn anew for each."""
    p = made.method.parameters
    return np.asarray(
        descend(
            np.full(n, AGENT), np.zeros((n, problem.dim)), side * n + np.arange(n), 1, problem.data,
            steps=schedule(p.inner, problem.dim, p.u1, p.step), samples=J,
            c=np.repeat(c, n, 0), q=q,
        )
    )  # fmt: skip


def attacked(
    regularizer: str, where: str, level: Level, n: int, control: bool = False
) -> list[Row]:  # fmt: skip
    """A row of numbers, and points of the densities of the first entry on both data sets."""
    made = next(simulations(Case("d-zoa", {"problem.regularizer": REGULARIZERS[regularizer]}), [1]))
    c, q = shifts(made, where)
    J, pair = samples(made, level, MOST)[AGENT], neighbours(made.problem, c, q)
    reach = lemma_3(C1, RHO, round(q / (2.0 * RHO)), int(made.problem.rows[AGENT]))
    claimed = reach * np.sqrt(2.1 * np.log(1.25 / level.delta)) / level.epsilon
    if control:
        scale = reach / mu_of(level.epsilon, level.delta)
        old, new = (
            argmin(one, c, q) + scale * keys.normals(
                side, Stream.NOISE, round=np.arange(n), size=made.problem.dim
            )
            for side, one in enumerate(pair)
        )  # fmt: skip
    else:
        old, new = (messages(made, one, J, n, s, c, q) for s, one in enumerate(pair))
    kind = "exact minimiser and noise" if control else f"D-ZOA, {regularizer}"
    about = {"what": kind, "where": where, "epsilon": level.epsilon, "samples": J, "draws": n}
    return [_numbers(about, level, old, new, claimed), *_densities(about, old, new, claimed)]


def _numbers(about: Row, level: Level, old: Array, new: Array, claimed: float) -> Row:
    finding = judge(
        Claim("paper", level.epsilon, level.delta), *trained(old, new), exact=False, level=RISK
    )
    spread = float(np.sqrt(0.5 * (old[:, 0].var() + new[:, 0].var())))
    shift = abs(float(new[:, 0].mean() - old[:, 0].mean()))  # the record is along the first entry
    one, many = (float(epsilon_of(shift / spread * np.sqrt(k), level.delta)) for k in (1, ROUNDS))
    numbers = {"claimed_sd": claimed, "sd": spread, "shift": shift, "low": finding.epsilon_low}
    more = {"one": one, "all": many, "claimed_all": level.total, "verdict": finding.verdict}
    return {"part": "attack", **about, **numbers, **more, "x": "", "y": ""}


def _densities(about: Row, old: Array, new: Array, claimed: float) -> list[Row]:
    blank = dict.fromkeys(
        ("claimed_sd", "sd", "shift", "low", "one", "all", "claimed_all", "verdict"), ""
    )
    centre, rows = 0.5 * float(old[:, 0].mean() + new[:, 0].mean()), []
    width = 6.0 * max(float(old[:, 0].std()), 0.5 * abs(float((new - old)[:, 0].mean())))
    for name, values in (("old", old[:, 0]), ("new", new[:, 0])):
        x = width * POINTS
        y = gaussian_kde(values - centre)(x)
        rows += [
            {"part": name, **about, **blank, "claimed_sd": claimed, "x": float(a), "y": float(b)}
            for a, b in zip(x, y, strict=True)
        ]
    return rows


def study(monte_carlo: MonteCarlo, sets: int) -> list[Row]:
    """Attacks on one message, the control, and desim's audits of whole runs."""
    rows = [row for case in CASES for row in attacked(*case)]
    rows += attacked("ridge", "at the optimum", Level(0.15), DRAWS, control=True)
    blank = dict.fromkeys(rows[0], "")
    for file, words in AUDITS.items():
        found = audit(SCENARIOS / f"{file}.yaml", runs=RUNS, workers=monte_carlo.processes)
        for one in found.findings:
            told = {
                "what": words,
                "where": one.claim.name,
                "draws": RUNS,
                "epsilon": one.claim.epsilon,
            }
            rows.append(
                {**blank, "part": "audit", **told, "low": one.epsilon_low, "verdict": one.verdict}
            )
    return rows


def markdown(rows: Sequence[Row]) -> str:
    """The attacks and the audits."""
    head = (
        "message", "round", "J", "draws", "sd claimed", "sd", "shift", "ε claimed",
        "ε at least (95 %)", "if it were Gaussian: 1 message / 200", "claimed for 200", "claim",
    )  # fmt: skip
    lines = [
        (
            row["what"], row["where"], f"{row['samples']}", f"{row['draws']}",
            f"{row['claimed_sd']:.3f}", f"{row['sd']:.4f}", f"{row['shift']:.4f}",
            f"{row['epsilon']:g}", f"{row['low']:.3g}", f"{row['one']:.3g} / {row['all']:.3g}",
            f"{row['claimed_all']:.3g}", row["verdict"],
        )
        for row in rows if row["part"] == "attack"
    ]  # fmt: skip
    audits = [
        (
            row["what"], row["where"], f"{row['epsilon']:.4g}".replace("inf", "infinite"),
            f"{row['low']:.3g}", f"{row['draws']} + {row['draws']}", row["verdict"],
        )
        for row in rows if row["part"] == "audit"
    ]  # fmt: skip
    again = ("scenario", "claim", "ε claimed", "ε at least (99 %)", "runs", "verdict")
    return f"{page.table(head, lines)}\n\n{page.table(again, audits)}"


def draw(rows: Sequence[Row]) -> Axes:
    """Densities of an entry of the message on both data sets: as claimed, as they are, control."""
    panels = Figure(figsize=(7.2, 2.7)).subplots(1, 3)
    kinds = ("D-ZOA, ridge", "D-ZOA, ridge", "exact minimiser and noise")
    titles = (
        "as claimed, and as it is",
        "as it is, enlarged",
        "control: exact minimiser + noise",
    )
    for axes, kind, title in zip(panels, kinds, titles, strict=True):
        mine = page.chosen(rows, what=kind, where="at the optimum", epsilon=0.15)
        for part, label, colour, dash in (
            ("old", "$D$", COLOURS[0], "-"), ("new", "$D'$", COLOURS[1], "--"),
        ):  # fmt: skip
            x, y = (np.array([r[k] for r in mine if r["part"] == part]) for k in ("x", "y"))
            axes.plot(x, y / y.max(), dash, color=colour, label=label)
            axes.fill_between(x, y / y.max(), color=colour, alpha=0.12, linewidth=0.0)
        axes.set_title(title, fontsize=9)
        axes.set_ylim(0.0, 1.12)
        axes.set_yticks([])
        axes.set_xlabel(r"$\beta_1$ from its mean")
    sd = next(r["claimed_sd"] for r in rows if r["part"] == "attack")
    wide = 3.2 * sd * POINTS
    panels[0].plot(
        wide, np.exp(-0.5 * (wide / sd) ** 2), "-.", color="black", lw=1.0, label="claimed"
    )
    panels[0].set_ylabel("density over its largest")
    panels[0].legend(loc="upper left", handlelength=1.2)
    return cast(Axes, panels[0])
