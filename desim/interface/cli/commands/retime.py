"""`desim retime`: a stored run on other clocks."""

from pathlib import Path
from typing import Annotated

from desim.interface.cli.options import Force, RunFolder, option, output_option, with_out
from desim.interface.cli.progress import tell

Network = Annotated[str | None, option("network", "FILE", "Network file, or its name: satellite.")]
Compute = Annotated[str | None, option("compute", "FILE", "File with a section compute.")]
Out = Annotated[Path | None, output_option("DIR", "New directory; default: runs/NAME-NETWORK.")]


def retime(
    run: RunFolder,
    network: Network = None,
    compute: Compute = None,
    out: Out = None,
    force: Force = False,
) -> None:
    """Tell a run again under another network, without training again."""
    import desim
    from desim.errors import InputError
    from desim.runs.directory import next_free

    conditions = [name for name in (network, compute) if name is not None]
    if not conditions:
        raise InputError("retime: found neither --network nor --compute; allowed: one, or both")
    with_out(force, out)
    opened = desim.open(run)
    name = "-".join([opened.name, *(Path(one).stem for one in dict.fromkeys(conditions))])
    path = out or next_free(Path("runs"), name)
    tell(desim.retime(opened, network, compute, out=path, force=force))
