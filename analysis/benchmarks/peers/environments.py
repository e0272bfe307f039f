"""An environment for each peer, made on demand in a folder that the user names."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Needs(NamedTuple):
    """What a peer needs: packages for pip, and a Python (3.13; empty: the one that runs this)."""

    packages: tuple[str, ...]
    python: str = ""


TORCH = "torch==2.13.0"  # which may be a build without GPU libraries
NEEDS = {
    "jax": Needs(("jax[cpu]",)),
    "tvopt": Needs(("tvopt", "numpy<2")),  # it takes floats of arrays with one element
    "flower": Needs((TORCH, "flwr[simulation]==1.41.0")),
    "pfl": Needs((TORCH, "pfl==0.6.0")),
    "decent-bench": Needs(("decent-bench", "jinja2"), "3.13"),  # its display needs jinja2
}


class Unavailable(Exception):
    """Why a peer cannot take part."""


def interpreter(name: str, folder: Path) -> Path:
    """The Python of the peer's environment in `folder`; Unavailable where it cannot be made."""
    if name not in NEEDS:
        return Path(sys.executable)
    needs, place = NEEDS[name], folder / name
    python = place / "bin" / "python"
    if not (place / "ready").exists():
        shutil.rmtree(place, ignore_errors=True)
        _carry_out(_base(needs.python), "-m", "venv", str(place))
        _carry_out(str(python), "-m", "pip", "install", "-q", *needs.packages)
        (place / "ready").touch()
    return python


def _base(version: str) -> str:
    """A Python of that version: on the path, or among those that pyenv keeps."""
    if not version:
        return sys.executable
    kept = Path.home().glob(f".pyenv/versions/{version}*/bin/python")
    for python in filter(None, (shutil.which(f"python{version}"), *map(str, sorted(kept)))):
        if not subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
            return python
    raise Unavailable(f"needs Python {version}, which is not on the path")


def _carry_out(*command: str) -> None:
    print("  " + " ".join(command), file=sys.stderr)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()
        raise Unavailable(f"{' '.join(command[1:4])}: {said[-1]}")
