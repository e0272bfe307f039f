"""`network: wifi`: network conditions that live in a file of their own, shared by scenarios."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from desim.errors import InputError, refusal, spelling
from desim.scenario import shipped
from desim.scenario.tree import Tree, require_mapping

FILES = ("trace", "file")


def include_network(tree: Tree, folder: Path, read: Callable[[Path], Tree]) -> None:
    """Replace the name of a network in `tree` by what its file says; the scenario's own keys win.

    The file holds `network` and perhaps `compute`; tables that it names may stand beside it.
    InputError if there is no such file.
    """
    written = tree.data.get("network")
    if isinstance(written, str):
        written = tree.data["network"] = {"include": written}
    if not isinstance(written, dict) or "include" not in written:
        return
    name = written.pop("include")
    file = _find(tree, name, folder)
    other = read(file)
    require_mapping(other, "a mapping with network, and perhaps compute")
    _check(other)
    _anchor(other.data, file.parent, folder)
    for section in ("network", "compute"):
        tree.lay_under(other, section)


def _find(tree: Tree, name: object, folder: Path) -> Path:
    place = ("network", "include") if ("network", "include") in tree.marks else ("network",)
    if not isinstance(name, str) or not name.strip():
        raise InputError(tree.line(place, refusal(name, "the name of a file in networks/")))
    folders = (folder / "networks", folder, shipped.NETWORKS)
    for directory in folders:
        for file in (directory / f"{name}.yaml", directory / name):
            with contextlib.suppress(OSError, ValueError):
                if file.is_file():
                    return file
    own = (folder / "networks").glob("*.yaml")
    known = sorted({*(file.stem for file in own), *shipped.networks()})
    raise InputError(
        tree.line(place, refusal(name, f"{', '.join(known)}, or a file") + spelling(name, known))
    )


def _anchor(data: Any, beside: Path, folder: Path) -> None:
    """Let names of files that stand beside the included one, and not in `folder`, lead there."""
    for key, value in data.items():
        if isinstance(value, dict):
            _anchor(value, beside, folder)
        elif key in FILES and isinstance(value, str):
            with contextlib.suppress(OSError, ValueError):
                if not (folder / value).is_file() and (beside / value).is_file():
                    data[key] = str((beside / value).resolve())


def _check(other: Tree) -> None:
    problems = [other.line(place, text) for place, text in other.problems]
    problems += [
        other.line((key,), "unknown key in a network file; allowed: network, compute")
        for key in other.data
        if key not in ("network", "compute")
    ]
    network = other.data.get("network")
    if not isinstance(network, dict):
        problems.append(f"{other.source}: found no network; allowed: network: {{...}}")
    elif "include" in network:
        problems.append(other.line(("network", "include"), "an included file includes no other"))
    if problems:
        raise InputError(problems)
