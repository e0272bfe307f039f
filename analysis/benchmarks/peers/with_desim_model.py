"""Federated averaging of a torch network in desim, its log stored; `networks` runs it.

PYTHON with_desim_model.py FILE CLIENTS ROUNDS    # prints the seconds of a round
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from network import BATCH, STEP, STEPS

import desim

PLUGIN = Path(__file__).parents[1] / "modules.py"


def scenario(file: str, clients: int, rounds: int) -> dict[str, Any]:
    """Devices and links that differ, nothing measured."""
    data = {"source": "mnist-npz", "file": file, "scale": "pixel"}
    local = {"solver": "sgd", "batch": BATCH, "epochs": STEPS, "step": STEP}
    return {
        "plugins": [str(PLUGIN)],
        "problem": {"agents": clients, "data": data, "model": "convolution"},
        "algorithm": {"name": "fedavg", "local": local},
        "network": {"link": {"latency": {"uniform": ["10 ms", "60 ms"]}}},
        "compute": {"speed": {"uniform": [500, 2000]}},
        "observe": {"metrics": []},
        "stop": {"rounds": rounds},
    }


def seconds(tree: dict[str, Any]) -> float:
    """Of a run, with all that a user waits for."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        desim.run(tree, str(Path(folder) / "run"))
        return time.perf_counter() - began


def main() -> None:
    """Play one round and several: the difference is what the others took."""
    file, clients, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    seconds(scenario(file, 2, 1))
    first, all_ = (seconds(scenario(file, clients, many)) for many in (1, rounds))
    each = (all_ - first) / (rounds - 1)
    print("RESULT", json.dumps({"rounds": [each], "version": f"desim {desim.__version__}"}))


if __name__ == "__main__":
    main()
