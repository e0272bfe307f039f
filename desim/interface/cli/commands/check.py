"""`desim check`: a scenario without simulating it, or the laws of an algorithm or loss."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from desim.errors import InputError, RunError, spelling
from desim.interface.cli.options import Overrides, load_scenario, path_argument, settings, switch
from desim.interface.cli.progress import say

if TYPE_CHECKING:
    from desim.experiments.contract import Finding
    from desim.scenario.schema import Scenario

Target = Annotated[
    Path,
    path_argument("SCENARIO", "Scenario; with --contract also a plug-in or a name."),
]
Contract = Annotated[
    bool, switch("contract", "Hold its algorithm, loss or model to desim's tests.")
]


def check(scenario: Target, override: Overrides = None, contract: Contract = False) -> None:
    """Check a scenario, its data and its network; write nothing."""
    from desim.interface.cli.progress import announced
    from desim.runs.interruption import preparing

    if contract:
        with announced(), preparing():
            require_lawful(scenario, settings(override))
        return
    from desim.numerics.plain import few_calls
    from desim.scenario import build
    from desim.scenario.described import circumstances, sentence

    loaded = load_scenario(scenario, override)
    with announced(), preparing(), few_calls():
        simulation = build.check(loaded)
        lines = circumstances(simulation)
    lines += [f"warning: {text}" for text in simulation.method.warnings]
    say("\n".join([sentence(loaded, simulation), *(f"  {line}" for line in lines)]))


# Whose contract is meant, and what came of it, line by line.

HINT = "it is tried on a small scenario: give what is missing by --set, or name a scenario"


def require_lawful(target: Path, overrides: Mapping[str, str]) -> None:
    """Check all that `target` brings: a plug-in's file, a scenario, or a name; RunError if broken.

    Of a scenario it is the algorithm, as it is used there, and its own loss or model.
    """
    from desim.experiments import contract
    from desim.scenario import registry

    scenario, names = _asked(target, overrides)
    broken, own = 0, registry.plugged()
    for name in names:
        if name in own.losses:
            kind, findings = "loss", contract.loss(name)
        elif name in own.models:
            kind, findings = "model", _tried(contract.model, name, scenario, overrides)
        else:
            kind, findings = "algorithm", _tried(contract.algorithm, name, scenario, overrides)
        place, outcomes = "", {"kept": 0, "broken": 0, "skipped": 0}
        with suppress(OSError, TypeError):  # of desim's own there is no word
            if found := own.losses.get(name) or own.models.get(name) or own.methods.get(name):
                file, line = inspect.getsourcefile(found), inspect.getsourcelines(found)[1]
                place = f" ({Path(file or '').name}, line {line})"
        typer.echo(f"{name}: {kind}{place}")
        for finding in findings:
            outcomes[finding.outcome] += 1
            typer.echo(f"  {finding}")
        typer.echo("  " + ", ".join(f"{n} {outcome}" for outcome, n in outcomes.items() if n))
        broken += outcomes["broken"]
    if broken:
        raise RunError(f"{target}: {broken} {'law is' if broken == 1 else 'laws are'} broken")


def _asked(target: Path, overrides: Mapping[str, str]) -> "tuple[Scenario | None, list[str]]":
    """The scenario, if `target` is one, and names of all that is to be checked."""
    from desim.scenario import registry
    from desim.scenario.load import load
    from desim.scenario.tree import named_file

    name, own = target.as_posix(), registry.plugged()
    known = (*registry.names(), *own.losses, *own.models)
    if target.suffix == ".py":
        if names := list(registry.load_plugin(target)):
            return None, names
        raise InputError(
            f"{target}: defines no algorithm, no loss and no model; allowed: subclasses of "
            "desim.method.Method, desim.model.ScalarLoss or desim.model.Model, with a name"
        )
    if name in known:
        return None, [name]
    try:
        file = named_file(target)
    except InputError as error:
        near, plugin = spelling(name, known), target.with_name(f"{target.name}.py")
        if plugin.is_file():
            near = f"; did you mean {plugin.as_posix()!r}?"
        if near or target.suffix not in (".yaml", ".yml"):
            near = near or "; allowed: a plug-in's file, a scenario, or a name of desim list"
            text = f"{name}: no such file, scenario, algorithm, loss or model{near}"
            raise InputError(text) from None
        raise error from None
    scenario = load(file, overrides)
    plugged = (scenario.problem.loss.own, scenario.problem.model)
    return scenario, [scenario.algorithm.name, *(one.name for one in plugged if one)]


def _tried(
    laws: "Callable[..., Iterator[Finding]]", name: str, scenario: "Scenario | None",
    overrides: Mapping[str, str],
) -> "Iterator[Finding]":  # fmt: skip
    if scenario is not None:
        return laws(name, scenario)
    try:
        return laws(name, None, overrides)
    except InputError as error:
        lines = [line.removeprefix("scenario: ") for line in error.problems]
        raise InputError([f"{name}: {line}" for line in lines] + [f"{name}: {HINT}"]) from None
