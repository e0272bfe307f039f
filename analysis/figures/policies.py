"""The README's figure: one problem, one set of phones, four ways of waiting.

python -m analysis.figures.policies
"""

from pathlib import Path
from typing import Any

import desim

FOLDER = Path(__file__).parent
SCENARIO = FOLDER.parents[1] / "scenarios" / "asynchronous.yaml"
POLICIES: dict[str, Any] = {
    "wait for all": "all",
    "deadline 1 s": {"deadline": "1 s"},
    "buffer of 5": {"buffer": 5},
    "each reply": "each",
}
WITHOUT_NOISE = {"solver": "gradient", "epochs": 10}


def main() -> None:
    """Play, draw, and print when the error is first at most 1."""
    runs = [
        desim.run(
            SCENARIO, overrides={"name": name, "policy": policy, "algorithm.local": WITHOUT_NOISE}
        )
        for name, policy in POLICIES.items()
    ]
    desim.plot(runs, metric="error", out=FOLDER / "policies.svg")
    for run in runs:
        print(f"{run.name}: error 1 after {run.time_to('error', 1.0):g} s")


if __name__ == "__main__":
    main()
