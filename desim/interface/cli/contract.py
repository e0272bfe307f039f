"""`desim check --contract`: whose contract is meant, and what came of it, line by line."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import typer

from desim.errors import InputError, RunError, spelling
from desim.experiments import contract
from desim.experiments.contract import Finding
from desim.scenario import registry
from desim.scenario.load import load
from desim.scenario.schema import Scenario
from desim.scenario.tree import named_file

HINT = "it is tried on a small scenario: give what is missing by --set, or name a scenario"


def keep(target: Path, overrides: Mapping[str, str]) -> None:
    """Check all that `target` brings: a plug-in's file, a scenario, or a name; RunError if broken.

    Of a scenario it is the algorithm, as it is used there, and its own loss or model.
    """
    broken = 0
    for name, kind, findings in _asked(target, overrides):
        outcomes = {"kept": 0, "broken": 0, "skipped": 0}
        typer.echo(f"{name}: {kind}{_place(name)}")
        for finding in findings:
            outcomes[finding.outcome] += 1
            typer.echo(f"  {finding}")
        typer.echo("  " + ", ".join(f"{n} {outcome}" for outcome, n in outcomes.items() if n))
        broken += outcomes["broken"]
    if broken:
        raise RunError(f"{target}: {broken} {'law is' if broken == 1 else 'laws are'} broken")


def _asked(
    target: Path, overrides: Mapping[str, str]
) -> Iterator[tuple[str, str, Iterator[Finding]]]:
    """Name, kind and findings of all that is to be checked."""
    name = target.as_posix()
    scenario: Scenario | None = None
    if target.suffix == ".py":
        names = registry.load_plugin(target)
        if not names:
            raise InputError(
                f"{target}: defines no algorithm, no loss and no model; allowed: subclasses of "
                "desim.method.Method, desim.model.ScalarLoss or desim.model.Model, with a name"
            )
    elif name in _known():
        names = [name]
    else:
        scenario = load(_file(target), overrides)
        own, model = scenario.problem.loss.own, scenario.problem.model
        names = [scenario.algorithm.name, *(one.name for one in (own, model) if one)]
    for one in names:
        if one in registry.plugged().losses:
            yield one, "loss", contract.loss(one)
        elif one in registry.plugged().models:
            yield one, "model", _tried(contract.model, one, scenario, overrides)
        else:
            yield one, "algorithm", _tried(contract.algorithm, one, scenario, overrides)


def _place(name: str) -> str:
    """File and line of what a plug-in defines; "" for desim's own."""
    own = registry.plugged()
    found = own.losses.get(name) or own.models.get(name) or own.methods.get(name)
    with suppress(OSError, TypeError):
        if found is not None:
            file, line = inspect.getsourcefile(found), inspect.getsourcelines(found)[1]
            return f" ({Path(file or '').name}, line {line})"
    return ""


def _known() -> tuple[str, ...]:
    """Names of all that has a contract."""
    own = registry.plugged()
    return (*registry.names(), *own.losses, *own.models)


def _tried(
    laws: Callable[..., Iterator[Finding]],
    name: str,
    scenario: Scenario | None,
    overrides: Mapping[str, str],
) -> Iterator[Finding]:
    if scenario is not None:
        return laws(name, scenario)
    try:
        return laws(name, None, overrides)
    except InputError as error:
        lines = [line.removeprefix("scenario: ") for line in error.problems]
        raise InputError([f"{name}: {line}" for line in lines] + [f"{name}: {HINT}"]) from None


def _file(target: Path) -> Path:
    """A scenario's file; InputError that knows plug-ins' names, too."""
    try:
        return named_file(target)
    except InputError as error:
        name, plugin = target.as_posix(), target.with_name(f"{target.name}.py")
        near = spelling(name, _known())
        if plugin.is_file():
            near = f"; did you mean {plugin.as_posix()!r}?"
        if near or target.suffix not in (".yaml", ".yml"):
            near = near or "; allowed: a plug-in's file, a scenario, or a name of desim list"
            raise InputError(
                f"{name}: no such file, scenario, algorithm, loss or model{near}"
            ) from None
        raise error from None
