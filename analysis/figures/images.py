"""The gallery's networks of images: one torch module, five ways of waiting, a ring, and noise.

python -m analysis.figures.images FILE    # fashion_mnist as an npz of Keras; it needs torch

Writes gallery-images.svg and gallery-images-noise.svg; six minutes of two cores. With --short, 3
rounds of each way of waiting, with noise and without, on both engines: equal to the bit or not.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

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
SHARES = {"buffer of 5": 0.5, "each reply": 0.1}  # of a collection's mean that is taken over
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
    found = {}
    for name, policy in POLICIES.items():
        averaging = {"name": "fedavg", "local": STEPS, "global_step": SHARES.get(name, 1.0)}
        found[name] = scenario(file, name, policy=policy, algorithm=averaging)
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


def private(tree: dict[str, Any]) -> dict[str, Any]:
    """The same with clipped gradients of rows and noise on what is sent of them."""
    algorithm = dict(tree["algorithm"])
    if "local" in algorithm:
        algorithm["local"] = {"solver": "noisy", "epochs": 3, "step": 0.1}
    more = {"problem": {**tree["problem"], "clip": 1.0}, "algorithm": algorithm}
    return {**tree, **more, "privacy": {"noise": {"sigma": 0.05}}}


def agree(tree: dict[str, Any]) -> None:
    """Print whether both engines give the same tables and model, and the epsilon by view."""
    short = {**tree, "stop": {"rounds": 3}, "observe": {"metrics": ["accuracy", "loss"]}}
    short["problem"] = {**tree["problem"], "data": {**tree["problem"]["data"], "train": 1200}}
    one, two = (desim.run({**short, "engine": engine}) for engine in ("cohort", "agents"))
    same = [getattr(one, t).equals(getattr(two, t)) for t in ("events", "releases", "metrics")]
    same.append(np.array_equal(one.state["x"], two.state["x"]))
    near = "neighbour:3" if tree["algorithm"]["name"] == "dsgd" else "coordinator"
    seen = {view: one.epsilon(view=view)["epsilon"].max() for view in ("eavesdropper", near)}
    spent = ", ".join(f"{view} {value:.3g}" for view, value in seen.items())
    clip = tree["problem"].get("clip")
    print(f"{tree['name']}, clip {clip}: equal {all(same)}; epsilon at delta 1e-5 by view: {spent}")


def main() -> None:
    """Play, draw, and print where each run ends."""
    file = Path(sys.argv[1])
    if "--short" in sys.argv:
        for tree in waiting(file).values():
            agree(tree)
            agree(private(tree))
        return
    runs = [desim.run(tree) for tree in waiting(file).values()]
    desim.plot(runs, metric="accuracy", out=FOLDER / "gallery-images.svg")
    noised = [desim.run(tree) for tree in noisy(file)]
    spent = [float(run.epsilon()["epsilon"].max()) for run in noised[1:]]
    labels = ["no noise", *(f"epsilon {one:.3g}" for one in spent)]
    desim.plot(noised, metric="accuracy", labels=labels, out=FOLDER / "gallery-images-noise.svg")
    for run in (*runs, *noised):
        last = run.metrics[run.metrics["agent"] == -1].iloc[-1]
        print(f"{run.name}: accuracy {last['value']:.3f} after {last['time']:g} s")


if __name__ == "__main__":
    main()
