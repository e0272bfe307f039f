"""`desim join`: plays a host's agents in a deployment that waits elsewhere."""

from pathlib import Path
from typing import Annotated

import typer

from desim.interface.cli.options import option, switch
from desim.interface.cli.progress import complain


def join(
    address: Annotated[str, typer.Argument(help="Where desim deploy waits.", metavar="HOST:PORT")],
    invitation: Annotated[
        Path, option("with", "FILE", "The invitation that desim deploy wrote for this host.")
    ],
    trust: Annotated[
        bool, switch("trust", "Run code of plug-ins that the coordinator sends.")
    ] = False,
) -> None:
    """Take part in a deployment: play this host's agents until the run is over."""
    from desim.deployments.fleet import ended_by_others
    from desim.deployments.join import take_part

    try:
        with ended_by_others(complain):
            take_part(address, invitation, trust, complain)
    except KeyboardInterrupt:
        complain("stopped by Ctrl-C; its agents are lost to the run")
        raise typer.Exit(1) from None
