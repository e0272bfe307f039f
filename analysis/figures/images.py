"""The gallery's networks of images: one torch module, five ways of waiting, a ring, and noise.

python -m analysis.figures.images FILE    # fashion_mnist as an npz of Keras; it needs torch

Writes gallery-images.svg and gallery-images-noise.svg; six minutes of two cores. With --short, 4
rounds on both engines, which must agree to the bit.
"""

import sys
from pathlib import Path
from typing import Any

import desim

FOLDER = Path(__file__).parent
STEPS = {"solver": "sgd", "batch": 32, "epochs": 10, "step": 0.1}
LINK = {"latency": {"uniform": ["10 ms", "60 ms"]}, "bandwidth": "20 Mbit/s", "transport": "tcp"}
POLICIES: dict[str, Any] = {
    "wait for all": "all",
    "deadline 2 s": {"deadline": "2 s"},
    "quorum of 10": {"quorum": 10},
    "buffer of 5": {"buffer": 5},
    "each reply": "each",
}
END = {"time": "60 s"}
NOISES = (None, 0.5, 1.0, 2.0)  # deviations of a batch's mean, in units of what one row changes


def scenario(file: Path, name: str, **more: Any) -> dict[str, Any]:
    """Twenty phones, of which each has few kinds of images; slow ones among them."""
    return {
        "name": name,
        "seed": 1,
        "plugins": [str(FOLDER / "convolution.py")],
        "problem": {
            "agents": 20,
            "data": {"source": "mnist-npz", "file": str(file), "scale": "pixel",
                     "train": 6000, "test": {"rows": 1000}},
            "partition": {"dirichlet": 0.3},
            "model": "convolution",
            **more.pop("problem", {}),
        },
        "algorithm": {"name": "fedavg", "local": STEPS},
        "network": {"link": LINK},
        "compute": {"speed": {"lognormal": [400, 0.7]}},
        "observe": {"metrics": ["accuracy"], "every": "1 s"},
        "stop": END,
        **more,
    }  # fmt: skip


def waiting(file: Path) -> dict[str, dict[str, Any]]:
    """A scenario for each way of waiting, and one without a coordinator."""
    found = {name: scenario(file, name, policy=policy) for name, policy in POLICIES.items()}
    ring = {"topology": "ring", "link": LINK}
    dsgd = {"name": "dsgd", "alpha": 0.1, "batch": 32, "weights": "metropolis"}
    found["dsgd on a ring"] = scenario(file, "dsgd on a ring", algorithm=dsgd, network=ring)
    return found


def noisy(file: Path) -> list[dict[str, Any]]:
    """DSGD on a ring with more and less noise on clipped gradients of batches."""
    found = []
    for noise in NOISES:
        private = {} if noise is None else {"privacy": {"noise": {"sigma": noise * 2.0 / 64}}}
        dsgd = {"name": "dsgd", "alpha": 0.2, "batch": 64, "weights": "metropolis"}
        ring = {"topology": "ring", "link": LINK}
        name = "no noise" if noise is None else f"noise {noise:g}"
        even = {"clip": 1.0, "partition": "iid"}
        found.append(scenario(file, name, algorithm=dsgd, network=ring, problem=even, **private))
    return found


def agree(tree: dict[str, Any]) -> None:
    """Print whether both engines give the same tables, and the epsilon by view."""
    short = {**tree, "stop": {"rounds": 4}, "observe": {"metrics": ["accuracy", "loss"]}}
    one, two = (desim.run({**short, "engine": engine}) for engine in ("cohort", "agents"))
    same = [getattr(one, t).equals(getattr(two, t)) for t in ("events", "releases", "metrics")]
    print(f"{tree['name']}: events, releases and metrics of two engines are equal: {same}")


def main() -> None:
    """Play, draw, and print where each run ends."""
    file = Path(sys.argv[1])
    if "--short" in sys.argv:
        for tree in (*waiting(file).values(), *noisy(file)):
            agree(tree)
        return
    runs = [desim.run(tree) for tree in waiting(file).values()]
    desim.plot(runs, metric="accuracy", out=FOLDER / "gallery-images.svg")
    private = [desim.run(tree) for tree in noisy(file)]
    desim.plot(private, metric="accuracy", out=FOLDER / "gallery-images-noise.svg")
    for run in (*runs, *private):
        last = run.metrics[run.metrics["agent"] == -1].iloc[-1]
        print(f"{run.name}: accuracy {last['value']:.3f} after {last['time']:g} s")
    for run in private[1:]:
        print(run.name, run.epsilon().to_string())


if __name__ == "__main__":
    main()
