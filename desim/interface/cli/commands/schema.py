"""`desim schema`: the JSON Schema of scenario files, to a file or to standard output."""

from pathlib import Path
from typing import Annotated

import typer

from desim.interface.cli.options import output_option, switch


def schema(
    out: Annotated[Path | None, output_option("FILE", "Default: standard output.")] = None,
    study: Annotated[bool, switch("study", "Of study files, and those of desim tune.")] = False,
) -> None:
    """Write the JSON Schema of scenario files, or of study files, for editors."""
    import json

    from desim.runs.directory import output
    from desim.scenario.schema import json_schema
    from desim.scenario.study_file import study_schema

    text = json.dumps(study_schema() if study else json_schema(), indent=2, ensure_ascii=False)
    if out is None:
        typer.echo(text)
        return
    with output(out, [".json"]) as partial:
        partial.write_text(text + "\n", "utf-8")
