"""`desim watch`: a page of a run while it plays."""

from typing import Annotated

import typer

from desim.interface.cli.options import RunFolder, option, switch

Port = Annotated[int, option("port", "N", "Port of the page; default: any that is free.")]
Wait = Annotated[bool, switch("wait", "Wait until a run begins there.")]


def watch(run: RunFolder, port: Port = 0, wait: Wait = False) -> None:
    """Serve a page of a run on this machine, while it plays and afterwards, until Ctrl-C."""
    from desim.interface.player.local_server import serve

    serve(run, port, wait, typer.echo)
