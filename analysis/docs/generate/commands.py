"""The command line: every command with its arguments and options, from the commands themselves."""

from typing import Any

import typer

from analysis.docs.generate.markdown import code, escaped, flowing, paragraphs, table
from desim.interface.cli import COMMANDS, app


def commands() -> str:
    """All commands, in the order of `desim --help`."""
    group: Any = typer.main.get_command(app)
    return paragraphs(*(_command(name, one) for name, one in group.commands.items()))


def _command(name: str, command: Any) -> str:
    own = [one for one in command.params if not getattr(one, "hidden", False)]
    usage = " ".join(["desim", name, *map(_usage, own)])
    rows = ((code(_names(one)), _said(one), _default(one)) for one in own)
    return paragraphs(
        f"## desim {name}",
        escaped(flowing(command.help or "")),
        f"```text\n{usage}\n```",
        "For example: " + "; ".join(map(code, COMMANDS[name])) + ".",
        table(("", "what it says", "default"), rows) if own else "",
    )


def _said(one: Any) -> str:
    """Its help, and what it may be where that is one of a few words."""
    kind = getattr(one, "type_descriptor", None) or getattr(one, "type", None)
    choices = ", ".join(code(choice) for choice in getattr(kind, "choices", None) or ())
    return escaped(flowing(one.help or "")) + (f" One of {choices}." if choices else "")


def _argument(one: Any) -> bool:
    return bool(one.param_type_name == "argument")


def _usage(one: Any) -> str:
    if _argument(one):
        shown = _metavar(one) + ("..." if one.nargs == -1 else "")
        return shown if one.required else f"[{shown}]"
    else:
        shown = "|".join(_opts(one)) + ("" if one.is_flag else f" {_metavar(one)}")
        shown += "..." if getattr(one, "multiple", False) else ""
    return shown if one.required else f"[{shown}]"


def _opts(one: Any) -> list[str]:
    """Its first name, and the one that says no."""
    return [one.opts[0], *getattr(one, "secondary_opts", ())[:1]]


def _metavar(one: Any) -> str:
    return str(one.metavar or str(one.name).upper()).strip("[.]")


def _names(one: Any) -> str:
    if _argument(one):
        return _metavar(one)
    names = [*one.opts, *getattr(one, "secondary_opts", ())]
    return ", ".join(names) + ("" if one.is_flag else f" {_metavar(one)}")


def _default(one: Any) -> str:
    if one.required:
        return "required"
    plain = isinstance(one.default, int | float | str) and not isinstance(one.default, bool)
    return code(one.default) if plain and one.default != "" else ""
