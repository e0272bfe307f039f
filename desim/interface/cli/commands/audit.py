"""`desim audit`: tries to refute an epsilon, and says what the verdict does not say."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from desim.amounts import epsilon as number
from desim.errors import InputError, refusal
from desim.interface.cli.options import (
    Overrides,
    ScenarioFile,
    load_scenario,
    option,
    output_option,
    switch,
)
from desim.interface.cli.progress import Interrupted, counting_bar, say
from desim.numerics.cores import cores

if TYPE_CHECKING:
    from desim.experiments.audit.verdict import Comparison, Finding
    from desim.scenario.schema import Scenario

LETTERS = {"epsilon": "epsilon", "mu": "Gaussian mu", "rho": "zCDP rho"}
METHODS = {
    "hockey-stick": "hockey-stick divergence",
    "mean ratio": "mean likelihood ratio",
    "infinite ratio": "by what one of the two data sets alone can show",
}
NAMES = ("paper", "rigorous")
PEER = ("pairwise",)


ONE_RUN = "Play one run, in which coins choose the records of canaries."
CANARIES = "With --one-run: how many; default: all rows, 500 at most."
PAIRS = "What agents of --view have received, on a graph."
CLAIM = "paper, rigorous or an epsilon; repeatable."
ROW = "Which record; default: a worst pair is searched."
OUT = output_option("DIR", "New directory; default: audits/NAME.")


def audit(
    scenario: ScenarioFile,
    runs: Annotated[int | None, option("runs", "N", "Runs on each side; default: 1000.")] = None,
    one_run: Annotated[bool, switch("one-run", ONE_RUN)] = False,
    canaries: Annotated[int | None, option("canaries", "M", CANARIES)] = None,
    pairs: Annotated[bool, switch("pairs", PAIRS)] = False,
    claim: Annotated[list[str] | None, option("claim", "CLAIM", CLAIM)] = None,
    view: Annotated[
        str | None, option("view", "VIEW", "E.g. neighbour:3; default: its own.")
    ] = None,
    delta: Annotated[float | None, option("delta", "D", "Default: the scenario's.")] = None,
    level: Annotated[float, option("level", "P", "Probability of a false alarm.")] = 0.01,
    agent: Annotated[
        int | None, option("agent", "I", "Whose record; default: who pays most.")
    ] = None,
    row: Annotated[int | None, option("row", "H", ROW)] = None,
    seed: Annotated[int, option("seed", "S", "Of the runs' noise.")] = 0,
    workers: Annotated[int | None, option("workers", "W", "Processes; default: all cores.")] = None,
    out: Annotated[Path | None, OUT] = None,
    override: Overrides = None,
) -> None:
    """Try to refute a scenario's epsilon by simulating it on neighbouring data.

    With --one-run a single run is enough: rows of one agent are canaries, each of which holds one
    of two records by a coin, and the coins are guessed from what the run shows. It says less than
    many runs do; it is for large models and for methods whose likelihood is not exact. Where a
    coordinator is trusted a whole agent is the canary. With --pairs, what --view neighbour:J has
    received is tested against desim privacy --pairs.
    """
    loaded = load_scenario(scenario, override)
    kind, names = _kind(loaded, pairs, one_run, row), PEER if pairs else NAMES
    options: dict[str, Any] = {
        "claims": [_claim(text, names) for text in claim or names], "view": view, "delta": delta,
        "level": level, "agent": agent, "seed": seed,
    }  # fmt: skip
    options |= _played(one_run, canaries, runs=runs, row=row, workers=workers)
    try:
        lines = _audited(loaded, out, kind, options)
    except KeyboardInterrupt:
        raise Interrupted("stopped before the verdict; nothing was written") from None
    say("\n".join(lines))


def _kind(scenario: "Scenario", pairs: bool, one_run: bool, row: int | None) -> str:
    """Which audit it is: records, one run, sums or pairs; InputError for options of another."""
    sums = scenario.privacy is not None and scenario.privacy.trusted
    whole = "--pairs" if pairs else "privacy.trust: coordinator"
    if (pairs or sums) and row is not None:
        text = f"nothing beside {whole}, where no single record is replaced"
        raise InputError(f"--row: {refusal(row, text)}")
    if (pairs or sums) and one_run:
        raise InputError(f"--one-run: found it beside {whole}; allowed: many runs, with --runs")
    return "pairs" if pairs else "sums" if sums else "one run" if one_run else "records"


def _played(one_run: bool, canaries: int | None, **many: int | None) -> dict[str, Any]:
    """Which runs are played; InputError for options of many runs beside one, and the reverse."""
    if not one_run and canaries is not None:
        raise InputError(f"--canaries: {refusal(canaries, 'nothing without --one-run')}")
    if not one_run:
        return {"runs": 1000, "workers": cores()} | {k: n for k, n in many.items() if n is not None}
    allowed = "nothing beside --one-run, which plays one run on canaries"
    unused = [f"--{name}: {refusal(n, allowed)}" for name, n in many.items() if n is not None]
    if unused:
        raise InputError(unused)
    return {"canaries": canaries}


def _audited(scenario: "Scenario", out: Path | None, kind: str, options: Any) -> list[str]:
    """Audit a loaded scenario, store the audit, return what to print."""
    from desim.experiments.audit.of_method import audit
    from desim.experiments.audit.of_one_run import audit_one_run
    from desim.experiments.audit.of_peer import audit_pair
    from desim.experiments.audit.of_sums import audit_sums
    from desim.runs.directory import check_free, next_free

    path, name = out or next_free(Path("audits"), scenario.name), scenario.name
    check_free(path, force=None)
    searching, playing = "searching a pair of data sets", "run"
    audits: dict[str, Any] = {"one run": audit_one_run, "sums": audit_sums, "pairs": audit_pair}
    if kind == "one run":
        searching, playing = "playing the run", "reference for canary"
    with counting_bar(f"{name}: {searching}", f"{name}: {playing}") as tell:
        found = audits.get(kind, audit)(scenario, tell=tell, **options)
    found.write(path)
    title = f"{found.name}: {found.title}"
    return report(title, found.findings, found.notes, path, found.relation)


def _claim(text: str, names: tuple[str, ...]) -> str | float:
    """A claim as it is written on the command line."""
    try:
        return text if text in names else float(text)
    except ValueError:
        allowed = f"{', '.join(names)}, or an epsilon"
        raise InputError(f"--claim: {refusal(text, allowed, names)}") from None


def report(
    title: str, findings: Sequence["Finding"], notes: Sequence[str], path: Path, relation: str
) -> list[str]:
    """Lines of text: what was played, one block for each claim, and the reservations."""
    width = max((len(one.claim.name) for one in findings), default=0) + 2
    blocks = [text for one in findings for text in _block(one, width, relation)]
    stored = f"  stored in {path}: audit.json, scores.npz, trade-off.png"
    return [title, *blocks, *(f"  note: {text}" for text in notes), stored]


def _block(finding: "Finding", width: int, relation: str) -> list[str]:
    """The verdict on one claim, and below it the claim's source and every test."""
    claim = finding.claim
    head = f"epsilon {number(claim.epsilon)} at delta {claim.delta:g}, {relation}"
    texts = [f"{head}: {finding.verdict} (level {finding.level:g})"]
    texts += claim.about.split("; ") if claim.about else []
    for test in finding.tests:
        low, claimed = number(test.low), number(test.claimed)
        bound = f"{LETTERS[test.parameter]} >= {low} {'>' if test.refutes else 'against'} {claimed}"
        texts.append(f"{bound} claimed, {_ground(test, claim.delta)}")
    names = [claim.name, *[""] * len(texts)]
    return [f"  {name:{width}}{text}" for name, text in zip(names, texts, strict=False)]


def _ground(test: "Comparison", delta: float) -> str:
    """How the bound of a test came about."""
    from desim.privacy.accounting.gaussian import epsilon_of

    if test.certified is not None:
        new, old = float(test.certified.new), float(test.certified.old)
        return f"event with probability >= {new:.3g} on D' and <= {old:.3g} on D"
    if test.method in METHODS or test.parameter != "mu":
        return METHODS.get(test.method, test.method)
    return f"{test.method} (epsilon {number(float(epsilon_of(test.low, delta)))} if it is Gaussian)"
