"""Options that several commands have."""

from typing import Annotated

import typer

from desim.errors import InputError

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override, e.g. algorithm.rho=0.1."),
]


def settings(texts: list[str] | None) -> dict[str, str]:
    """Values by dotted key from texts KEY=VALUE."""
    overrides = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--set: found {text!r}; allowed: KEY=VALUE, as in algorithm.rho=0.1")
        overrides[key.strip()] = value
    return overrides
