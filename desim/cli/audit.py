"""`desim audit`: tries to refute an epsilon, and says what the verdict does not say."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from desim.cli.options import Overrides, ScenarioFile, load_scenario
from desim.cli.outcome import complain
from desim.cli.progress import counting_bar
from desim.compiling.cores import cores
from desim.errors import InputError, refusal

if TYPE_CHECKING:
    from desim.audit.verdict import Comparison, Finding
    from desim.scenario.schema import Scenario

Line = Callable[["Comparison", float], str]
LETTERS = {"epsilon": "epsilon", "mu": "Gaussian mu", "rho": "zCDP rho"}
METHODS = {
    "hockey-stick": "hockey-stick divergence",
    "mean ratio": "mean likelihood ratio",
    "infinite ratio": "by what one of the two data sets alone can show",
}
NAMES = ("paper", "rigorous")


def audit(
    scenario: ScenarioFile,
    runs: Annotated[
        int | None, typer.Option("--runs", metavar="N", help="Runs on each side; default: 1000.")
    ] = None,
    one_run: Annotated[
        bool,
        typer.Option(
            "--one-run", help="Play one run, in which coins choose the records of canaries."
        ),
    ] = False,
    canaries: Annotated[
        int | None,
        typer.Option(
            "--canaries",
            metavar="M",
            help="With --one-run: how many; default: all rows, 500 at most.",
        ),
    ] = None,
    claim: Annotated[
        list[str] | None,
        typer.Option("--claim", metavar="CLAIM", help="paper, rigorous or an epsilon; repeatable."),
    ] = None,
    view: Annotated[
        str | None, typer.Option("--view", metavar="VIEW", help="Default: the scenario's.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option("--delta", metavar="D", help="Default: the scenario's.")
    ] = None,
    level: Annotated[
        float, typer.Option("--level", metavar="P", help="Probability of a false alarm.")
    ] = 0.01,
    agent: Annotated[
        int | None,
        typer.Option("--agent", metavar="I", help="Whose record; default: who pays most."),
    ] = None,
    row: Annotated[
        int | None,
        typer.Option("--row", metavar="H", help="Which record; default: a worst pair is searched."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="Of the runs' noise.")] = 0,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="W", help="Processes; default: all cores.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="DIR", help="New directory; default: audits/NAME."),
    ] = None,
    override: Overrides = None,
) -> None:
    """Try to refute a scenario's epsilon by simulating it on neighbouring data.

    With --one-run a single run is enough: rows of one agent are canaries, each of which holds one
    of two records by a coin, and the coins are guessed from what the run shows. It says less than
    many runs do; it is for large models and for methods whose likelihood is not exact.
    """
    loaded = load_scenario(scenario, override)
    options: dict[str, Any] = {
        "claims": [_claim(text) for text in claim or NAMES], "view": view, "delta": delta,
        "level": level, "agent": agent, "seed": seed,
    }  # fmt: skip
    many = {"runs": runs, "row": row, "workers": workers}
    if canaries is not None and not one_run:
        raise InputError(f"--canaries: {refusal(canaries, 'nothing without --one-run')}")
    unused = [
        f"--{name}: {refusal(value, 'nothing beside --one-run, which plays one run on canaries')}"
        for name, value in many.items()
        if value is not None and one_run
    ]
    if unused:
        raise InputError(unused)
    try:
        if one_run:
            lines = _in_one_run(loaded, out, options | {"canaries": canaries})
        else:
            lines = _in_many_runs(loaded, out, options | many)
    except KeyboardInterrupt:
        complain("stopped before the verdict; nothing was written")
        raise typer.Exit(1) from None
    typer.echo("\n".join(lines))


def _in_many_runs(scenario: "Scenario", out: Path | None, options: dict[str, Any]) -> list[str]:
    """Audit a loaded scenario, store the audit, return what to print."""
    from desim.audit.of_method import audit

    given = options | {
        "runs": 1000 if options["runs"] is None else options["runs"],
        "workers": cores() if options["workers"] is None else options["workers"],
    }
    path, name = _free(scenario, out), scenario.name
    with counting_bar(f"{name}: searching a pair of data sets", f"{name}: run") as tell:
        found = audit(scenario, tell=tell, **given)
    found.write(path)
    who = f"{found.name}: agent {found.agent}, record {found.row} replaced, seen by {found.view}"
    title = f"{who}; {len(found.scores.old)} + {len(found.scores.new)} runs"
    return report(title, found.findings, found.notes, path, _by_event)


def _in_one_run(scenario: "Scenario", out: Path | None, options: dict[str, Any]) -> list[str]:
    """The same by one run on canaries."""
    from desim.audit.of_one_run import audit_one_run

    path, name = _free(scenario, out), scenario.name
    with counting_bar(f"{name}: playing the run", f"{name}: reference for canary") as tell:
        found = audit_one_run(scenario, tell=tell, **options)
    found.write(path)
    who = f"{found.name}: agent {found.agent}, {found.canaries} canaries, seen by {found.view}"
    return report(f"{who}; one run", found.findings, found.notes, path, _by_guesses)


def _free(scenario: "Scenario", out: Path | None) -> Path:
    """Where the audit is stored."""
    from desim.runs.directory import check_free, next_free

    path = out or next_free(Path("audits"), scenario.name)
    check_free(path)
    return path


def _claim(text: str) -> str | float:
    """A claim as it is written on the command line."""
    try:
        return text if text in NAMES else float(text)
    except ValueError:
        allowed = "paper, rigorous, or an epsilon"
        raise InputError(f"--claim: {refusal(text, allowed, NAMES)}") from None


def report(
    title: str, findings: Sequence["Finding"], notes: Sequence[str], path: Path, line: Line
) -> list[str]:
    """Lines of text: what was played, one block for each claim, and the reservations."""
    width = max((len(one.claim.name) for one in findings), default=0) + 2
    blocks = [text for one in findings for text in _block(one, width, line)]
    stored = f"  stored in {path}: audit.json, scores.npz, trade-off.png"
    return [title, *blocks, *(f"  note: {text}" for text in notes), stored]


def _block(finding: "Finding", width: int, line: Line) -> list[str]:
    """The verdict on one claim, and below it the claim's source and every test."""
    claim = finding.claim
    head = f"epsilon {number(claim.epsilon)} at delta {claim.delta:g}, replace-one"
    texts = [
        f"{head}: {finding.verdict} (level {finding.level:g})",
        *(claim.about.split("; ") if claim.about else []),
        *(_bound(test) + line(test, claim.delta) for test in finding.tests),
    ]
    names = [claim.name, *[""] * len(texts)]
    return [f"  {name:{width}}{text}" for name, text in zip(names, texts, strict=False)]


def _bound(test: "Comparison") -> str:
    sign = ">" if test.refutes else "against"
    low, claimed = number(test.low), number(test.claimed)
    return f"{LETTERS[test.parameter]} >= {low} {sign} {claimed} claimed, "


def _by_event(test: "Comparison", delta: float) -> str:
    if test.certified is None:
        return METHODS[test.method]
    new, old = float(test.certified.new), float(test.certified.old)
    return f"event with probability >= {new:.3g} on D' and <= {old:.3g} on D"


def _by_guesses(test: "Comparison", delta: float) -> str:
    from desim.privacy.accounting.gaussian import epsilon_of

    if test.parameter != "mu":
        return test.method
    return f"{test.method} (epsilon {number(float(epsilon_of(test.low, delta)))} if it is Gaussian)"


def number(value: float) -> str:
    """A number in four digits, or the word for no bound."""
    return "infinite" if value == float("inf") else f"{value:.4g}"
