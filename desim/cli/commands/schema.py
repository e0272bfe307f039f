"""`desim schema`: the JSON Schema of scenario files, to a file or to standard output."""

from pathlib import Path
from typing import Annotated

import typer

from desim.cli.options import output_option


def schema(
    out: Annotated[Path | None, output_option("FILE", "Default: standard output.")] = None,
) -> None:
    """Write the JSON Schema of scenario files, for editors."""
    import json

    from desim.runs.output import output
    from desim.scenario.schema import json_schema

    text = json.dumps(json_schema(), indent=2, ensure_ascii=False)
    if out is None:
        typer.echo(text)
        return
    with output(out, [".json"]) as partial:
        partial.write_text(text + "\n", "utf-8")
