"""`desim schema`: the JSON Schema of scenario files, to a file or to standard output."""

import json
from pathlib import Path

import typer

from desim.errors import InputError
from desim.scenario.schema import json_schema


def write_schema(out: Path | None) -> None:
    """Write it; InputError where the file cannot be written."""
    text = json.dumps(json_schema(), indent=2, ensure_ascii=False)
    if out is None:
        typer.echo(text)
        return
    try:
        out.write_text(text + "\n", "utf-8")
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror})") from None
