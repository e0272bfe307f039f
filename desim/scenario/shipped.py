"""What comes with desim and goes by a name: scenarios, studies and network conditions.

A wheel carries them inside the package; a checkout has them beside it.
"""

import contextlib
from functools import cache
from pathlib import Path
from typing import Literal

from desim.errors import InputError, spelling

Kind = Literal["scenario", "study"]

HOME = Path(__file__).resolve().parents[1]
PLACES = (HOME / "scenarios", HOME.parent / "scenarios")
FOLDER = next((one for one in PLACES if (one / "quickstart.yaml").is_file()), PLACES[0])
NETWORKS, STUDIES = FOLDER / "networks", FOLDER / "studies"
MARK = "base:"  # the key that makes a file a study


def networks() -> dict[str, Path]:
    """The network files by name."""
    return {file.stem: file for file in sorted(NETWORKS.glob("*.yaml"))}


@cache
def studies() -> dict[str, Path]:
    """The study files by name."""
    files = {file.stem: file for file in sorted(STUDIES.glob("*.yaml"))}
    lines = {name: file.read_text("utf-8").splitlines() for name, file in files.items()}
    return {n: f for n, f in files.items() if any(one.startswith(MARK) for one in lines[n])}


@cache
def scenarios() -> dict[str, Path]:
    """The scenario files by name, which is their path: `quickstart`, `papers/fed-plt`."""
    apart = {*networks().values(), *studies().values()}
    files = sorted(FOLDER.rglob("*.yaml"), key=lambda file: (len(file.parts), file))
    return {named(file): file for file in files if file not in apart}


def named(file: Path) -> str:
    """The name of a shipped file."""
    return file.relative_to(FOLDER).with_suffix("").as_posix()


def named_file(source: str | Path, kind: Kind = "scenario", folder: Path | None = None) -> Path:
    """The file that `source` names: NAME or NAME.yaml in `folder`, else what desim brings.

    InputError, with both places, where there is none; whatever exists is left for its reader.
    """
    path = (folder or Path()) / source
    with contextlib.suppress(OSError, ValueError):
        for file in (path, path.with_name(f"{path.name}.yaml")):
            if file.is_file():
                return file
    known = studies() if kind == "study" else scenarios()
    name = Path(source).as_posix()
    if name in known:
        return known[name]
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{source}: {_missing(path, name, kind)}") from None
    except (OSError, ValueError):
        pass
    return path


def _missing(path: Path, name: str, kind: Kind) -> str:
    """Why there is no such file, and what is spelt most like it in either place."""
    known, others = scenarios(), studies()
    if kind == "study":
        known, others = others, known
    bare = name.removesuffix(".yaml")
    if bare in others:
        other = "a study: desim study" if kind == "scenario" else "a scenario: desim run"
        return f"no such file, and what comes with desim is {other} {bare}"
    if bare in known:
        return f"no such file; what comes with desim has no .yaml in its name: {bare}"
    near = spelling(path.name, [file.name for file in path.parent.glob("*.yaml")])
    if near:
        return f"no such file{near}"
    words = "scenarios" if kind == "scenario" else "studies"
    missing = f"no {kind} of that name comes with desim (desim list {words})"
    return f"no such file, and {missing}{spelling(bare, known)}"
