"""`desim watch`: a page of a run while it plays."""

from typing import Annotated

import typer

from desim.interface.cli.options import RunFolder, option, switch
from desim.interface.cli.progress import remark

Port = Annotated[int, option("port", "N", "Port of the page; default: any that is free.")]
Wait = Annotated[bool, switch("wait", "Wait until a run begins there.")]


def watch(run: RunFolder, port: Port = 0, wait: Wait = False) -> None:
    """Serve a page of a run on this machine, while it plays and afterwards, until Ctrl-C."""
    from desim.interface.player.local_server import has_begun, require_future, serve

    if wait and not has_begun(run):
        require_future(run, port)
        remark(f"waiting until a run begins at {run} (Ctrl-C ends it)")
    serve(run, port, wait, typer.echo)
