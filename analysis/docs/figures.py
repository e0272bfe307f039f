"""Draws the tutorial's figure from the tutorial's own scenario: python -m analysis.docs.figures."""

import re
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib

import desim

HERE = Path(__file__).resolve().parent
RUNS = {  # as on the page
    "clinics": {},
    "quorum": {"policy": {"quorum": 6}},
    "buffer": {"policy": {"buffer": 4}, "stop.rounds": 150},
}


def main() -> None:
    """Play the three runs of the page and draw what its last `desim plot` draws."""
    page = (HERE / "tutorial.md").read_text("utf-8")
    found = re.search(r":caption: clinics.yaml\n(.*?)```", page, re.DOTALL)
    assert found is not None
    matplotlib.rcParams["svg.hashsalt"] = "desim"
    with TemporaryDirectory() as folder, chdir(folder):
        Path("clinics.yaml").write_text(found[1], "utf-8")
        runs = [desim.run("clinics.yaml", f"runs/{name}", set_) for name, set_ in RUNS.items()]
        desim.plot(runs, metric="error", out=HERE / "figures" / "tutorial.svg")


if __name__ == "__main__":
    main()
