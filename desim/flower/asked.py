"""What `desim flower run` asks for: a scenario's keys for an app."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from desim.errors import InputError
from desim.flower.apps import App, found, require_flower, supernodes

NODES = 10  # of an app that does not say how many it simulates
ENDLESS = 10_000  # rounds of an app that ends by itself
PLUGIN = Path(__file__).with_name("as_plugin.py")
BASE: Mapping[str, Any] = {"network": "wifi", "compute": {"speed": "1000 /s"}}


def app_of(words: Sequence[str], config: Sequence[str]) -> App:
    """The app that a command line names: a folder, or server:app and client:app."""
    require_flower("desim flower")
    if len(words) == 2 and all(":" in one for one in words):
        return found(Path(), words[0], words[1], config)
    if len(words) != 1:
        text = f"found {' '.join(words) or 'nothing'}"
        raise InputError(f"flower: APP: {text}; allowed: a folder, or server:app client:app")
    folder = Path(words[0])
    return found(folder.parent if folder.name == "pyproject.toml" else folder, None, None, config)


def keys(
    app: App, words: Sequence[str], config: Sequence[str], agents: int | None, rounds: int | None,
    seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Sections of the scenario that plays an app: plugins, problem, algorithm, observe, stop.

    seed: that of the scenario, from which the app's own draws follow.
    """
    number = agents or supernodes(app.folder) or NODES
    own: dict[str, Any] = {"app": str(app.folder.resolve()), "agents": number}
    if len(words) == 2:
        own |= {"server": app.server, "client": app.client}
    if config:
        own["config"] = list(config)
    from desim.flower import probe

    known = probe.evaluator(app, number, seed)
    arguments = {**own, "seed": seed}
    data = {"source": "plugin", "name": "flower-clients", "arguments": arguments}
    return {
        "plugins": [str(PLUGIN)],
        "problem": {
            "data": data,
            "agents": number,
            "partition": "contiguous",
            "model": {"name": "flower-app", **own},
            "precision": "float64",
        },
        "algorithm": {"name": "flower"},
        "listeners": ["flower"],
        "observe": {"metrics": [*reversed(known.says)]},
        "stop": {"rounds": rounds or known.rounds or app.rounds or ENDLESS},
    }


def show_log(shown: bool) -> None:
    """Let Flower's own log say what it says, or only warnings."""
    from desim.flower.probe import Live

    Live.loud = shown
