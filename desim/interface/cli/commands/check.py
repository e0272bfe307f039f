"""`desim check`: a scenario without simulating it, or the laws of an algorithm or loss."""

from pathlib import Path
from typing import Annotated

import typer

from desim.interface.cli.options import Overrides, load_scenario, settings, switch
from desim.interface.cli.progress import say

Target = Annotated[
    Path,
    typer.Argument(help="Scenario; with --contract also a plug-in or a name.", metavar="SCENARIO"),
]
Contract = Annotated[
    bool, switch("contract", "Hold its algorithm, loss or model to desim's tests.")
]


def check(scenario: Target, override: Overrides = None, contract: Contract = False) -> None:
    """Check a scenario, its data and its network; write nothing."""
    from desim.interface.cli.progress import announced
    from desim.runs.interruption import preparing

    if contract:
        from desim.interface.cli.contract import keep

        with announced(), preparing():
            keep(scenario, settings(override))
        return
    from desim.interface.cli.describe import circumstances, sentence
    from desim.numerics.plain import few_calls
    from desim.scenario import build

    loaded = load_scenario(scenario, override)
    with announced(), preparing(), few_calls():
        simulation = build.check(loaded)
        lines = circumstances(simulation)
    lines += [f"warning: {text}" for text in simulation.method.warnings]
    say("\n".join([sentence(loaded, simulation), *(f"  {line}" for line in lines)]))
