"""`desim check`: a scenario, its data and its network, without playing it."""

import typer

from desim.cli.options import Overrides, ScenarioFile, load_scenario


def check(scenario: ScenarioFile, override: Overrides = None) -> None:
    """Check a scenario, its data and its network; write nothing."""
    from desim.cli.checked import sentence
    from desim.cli.compiling import announced
    from desim.scenario import build

    loaded = load_scenario(scenario, override)
    with announced():
        simulation = build.check(loaded)
    typer.echo(sentence(loaded, simulation))
