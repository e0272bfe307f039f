"""`desim schema`: the JSON Schema of scenario files, to a file or to standard output."""

from pathlib import Path
from typing import Annotated

import typer

from desim.errors import InputError


def schema(
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Default: standard output.")
    ] = None,
) -> None:
    """Write the JSON Schema of scenario files, for editors."""
    import json

    from desim.scenario.schema import json_schema

    text = json.dumps(json_schema(), indent=2, ensure_ascii=False)
    if out is None:
        typer.echo(text)
        return
    try:
        out.write_text(text + "\n", "utf-8")
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror})") from None
