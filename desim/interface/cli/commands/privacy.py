"""`desim privacy`: what a run has spent, or several together, and in which terms.

It prints one line that says it all, a table of views, then the fine print.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from desim.amounts import epsilon
from desim.errors import InputError, refusal
from desim.interface.cli.options import RELATIONS, option, path_argument, switch
from desim.interface.cli.progress import columns, wrapped
from desim.interface.pair_words import PAIR_HEADS, by_links, largest, resting
from desim.tabulated import aligned, each_once

if TYPE_CHECKING:
    from desim.privacy.accounting.risk import Risk
    from desim.runs.joint import Joint
    from desim.runs.privacy import Statement

Runs = Annotated[
    list[Path],
    path_argument("RUN...", "Directory of a run; of several: all together."),
]
HEADS = ("view", "relation", "delta", "paper epsilon", "rigorous epsilon", "advantage", "method")
TERMS = ("delta", "relation", "method", "reason", "assumptions")
TOGETHER = ("view", "relation", "delta", "epsilon", "advantage", "method")


VIEW = "E.g. neighbour:3; with --pairs also {agents: [3, 7]}; default: all that apply."
RELATION = f"{RELATIONS}."
ACCOUNTANT = "A plug-in's, beside desim's own."
PAIRS = (
    "What each agent has learnt of each other one; with --view: what that one, or they together."
)
ONLY = "neighbour:3, {agents: [3, 7]} or collusion:[3, 7], with --pairs"
AGENTS = re.compile(r"\{?\s*agents\s*:")
BRACES = re.compile(r"\{\s*(\w+)\s*:\s*(.*?)\s*\}")
PLUGIN = "Python file with an accountant or theorem."


def privacy(
    runs: Runs,
    delta: Annotated[float | None, option("delta", "D", "Default: the scenario's.")] = None,
    view: Annotated[str | None, option("view", "VIEW", VIEW)] = None,
    relation: Annotated[str | None, option("relation", "R", RELATION)] = None,
    accountant: Annotated[str | None, option("accountant", "NAME", ACCOUNTANT)] = None,
    plugin: Annotated[Path | None, option("plugin", "FILE", PLUGIN)] = None,
    pairs: Annotated[bool, switch("pairs", PAIRS)] = False,
    as_json: Annotated[bool, switch("json", "For other programs.")] = False,
) -> None:
    """Account for a run: the paper's epsilon beside the rigorous one, with all that they mean.

    Of several runs: what they cost together. Runs that share a seed share their noise.
    """
    import desim
    from desim.runs import joint
    from desim.runs.joint import joint as together
    from desim.runs.privacy import statement
    from desim.scenario import registry

    opened = [desim.open(run) for run in runs]
    if plugin is not None:
        registry.load_plugin(plugin)
    if pairs:
        if len(opened) > 1 or accountant is not None:
            raise InputError("--pairs: found with several runs or --accountant; allowed: one run")
        table = opened[0].pairwise(delta, relation, observers_of(view))
        about = {name: table.attrs[name] for name in TERMS if name in table.attrs}
        records = [
            {
                name: joint.number(one) if isinstance(one, float) else one
                for name, one in row.items()
            }
            for row in table.to_dict("records")
        ]
        plain = {"run": opened[0].name, **about, "pairs": records}
        text = [f"{opened[0].name}: {largest(table)}"]
        if records:
            text = _laid_out(text[0], PAIR_HEADS, by_links(table), resting(table), columns())
    elif view is not None and AGENTS.match(view):
        raise InputError(f"--view: found {view} without --pairs; allowed: {ONLY}")
    elif len(opened) == 1:
        single = statement(opened[0], delta, view, relation, accountant)
        plain, text = joint.plain(single), lines(opened[0].name, single, columns())
        plain = {"run": opened[0].name, **plain}
    else:
        if accountant is not None:
            raise InputError("--accountant: found with several runs; allowed: with one")
        found = together(opened, delta, view, relation)
        plain = {"runs": [str(run) for run in runs], "views": [*map(joint.together, found)]}
        text = lines_of_all(len(runs), found, columns())
    typer.echo(json.dumps(plain, indent=2, ensure_ascii=False) if as_json else "\n".join(text))


def lines(name: str, statement: "Statement", width: float = math.inf) -> list[str]:
    """Lines of text: a title, the table, and one aligned line per fact, none of them twice.

    width: columns of a terminal, into which all is folded.
    """
    table = statement.table
    heads = list(HEADS)
    if statement.accountant:
        heads.insert(5, f"epsilon of {statement.accountant}")
    rows = [[*_cells(row, statement)] for _, row in table.iterrows()]
    facts = [*_risks(zip(table["view"], table["risk"], strict=True))]
    facts += [
        ("", f"desim says instead: {text}") if name == "instead" else (name, text)
        for name, text in statement.paper()
    ]
    title = f"{name}: {shortly(statement)}"
    return _laid_out(title, heads, rows, [*facts, *statement.notes()], width)


def lines_of_all(runs: int, found: Sequence["Joint"], width: float = math.inf) -> list[str]:
    """The same about so many runs together."""
    from desim.runs.privacy import CAVEATS

    worst = max(found, key=lambda one: one.epsilon)
    terms = f"view {worst.view}, {worst.relation}, delta {worst.delta:g}, {worst.method}"
    spent = f"epsilon {epsilon(worst.epsilon, worst.flags)}, advantage {advantage(worst.risk)}"
    title = f"{runs} runs together: {spent} of agent {worst.agent}, which spends most ({terms})"
    rows = [
        (
            one.view, one.relation, f"{one.delta:g}", epsilon(one.epsilon, one.flags),
            advantage(one.risk), one.method,
        )
        for one in found
    ]  # fmt: skip
    facts = [*_risks((one.view, one.risk) for one in found)]
    facts += [("flag", text) for text in each_once([(one.view, one.flags) for one in found])]
    assumed = each_once([(one.view, one.assumptions) for one in found])
    facts += [*(("assumes", text) for text in assumed), *(("caveat", text) for text in CAVEATS)]
    return _laid_out(title, TOGETHER, rows, facts, width)


def observers_of(view: str | None) -> list[Any] | None:
    """The observers that a view names, None for each agent; InputError for one that names none."""
    from desim.privacy.accounting.views import read_view

    if view is None:
        return None
    pair = BRACES.fullmatch(view.strip())
    text = re.sub(r"^agents\s*:", "collusion:", f"{pair[1]}:{pair[2]}" if pair else view.strip())
    try:
        who = read_view(text)
    except ValueError:
        who = None
    if who is None or who.kind not in ("neighbour", "collusion"):
        raise InputError(f"--view: {refusal(view, ONLY)}")
    return [who.agents]


def _laid_out(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str]],
    facts: Sequence[tuple[str, str]], width: float,
) -> list[str]:  # fmt: skip
    """A table that is too wide has its rows one below the other, a line for each cell."""
    table = [f"  {row}" for row in aligned([heads, *rows])]
    if max(map(len, table)) > width:
        table = []
        for first, *rest in rows:
            cells = _listed(list(zip(heads[1:], rest, strict=True)), "    ")
            table += [f"  {heads[0]} {first}", *cells]
    return wrapped("\n".join([title, *table, "", *_listed(facts, "  ")]), width).split("\n")


def _listed(facts: Sequence[tuple[str, str]], margin: str) -> list[str]:
    """One line per fact, what it is in front."""
    wide = max((len(key) for key, _ in facts), default=0) + 2
    return [f"{margin}{key:{wide}}{text}" for key, text in facts]


def shortly(statement: "Statement") -> str:
    """The whole in one line: the largest epsilon, what it means, whose it is, and its terms.

    Where the coordinator is trusted that of the stated view.
    """
    table = statement.table
    if not len(table):
        return "nothing private was released"
    row = table.iloc[0 if statement.trusted else int(table["rigorous epsilon"].argmax())]
    said = epsilon(row["rigorous epsilon"], row["flags"])
    terms = f"view {row['view']}, {row['relation']}, delta {row['delta']:g}, {row['method']}"
    terms += f"; {statement.unsure}" * bool(statement.unsure)
    own = float(row["own epsilon"])
    also = "" if math.isnan(own) else f" (by plug-in {statement.accountant}: {epsilon(own)})"
    who = f"of agent {row['agent']}, which spends most"
    return f"epsilon {said}{also}, advantage {advantage(row['risk'])} {who} ({terms})"


def advantage(risk: "Risk") -> str:
    """The best attacker's advantage, `<=` where it is an upper bound."""
    value = (
        f"{risk.advantage:.3g}" if risk.advantage < 0.9995 or risk.advantage == 1.0 else "0.999+"
    )
    return value if risk.exact else f"<= {value}"


def _cells(row: Any, statement: "Statement") -> Iterator[str]:
    claim = statement.claim
    paper, rigorous = row["paper epsilon"], epsilon(row["rigorous epsilon"], row["flags"])
    said = "none" if math.isnan(paper) else epsilon(paper)
    if claim is not None and said != "none" and not claim.bound.covers(str(row["view"])):
        said += " (another view)"
    if row["median epsilon"] != row["rigorous epsilon"]:
        rigorous += f" (median {epsilon(row['median epsilon'])})"
    yield from (str(row["view"]), str(row["relation"]), f"{row['delta']:g}", said, rigorous)
    if statement.accountant:
        yield "none" if math.isnan(row["own epsilon"]) else epsilon(row["own epsilon"])
    yield from (advantage(row["risk"]), str(row["method"]))


def _risks(risks: Iterable[tuple[str, "Risk"]]) -> Iterator[tuple[str, str]]:
    """What the best attack on a record finds, once for the views in which it is the same."""
    yield from (("risk", text) for text in each_once([(view, [one.words]) for view, one in risks]))
