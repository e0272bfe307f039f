"""Runs that the tests of reports write about."""

from hashlib import sha256

import desim
from desim.runs import directory as place

SCENARIO = {
    "name": "small",
    "seed": 3,
    "problem": {
        "agents": 3,
        "data": {"source": "synthetic", "kind": "classification", "rows": 8, "dim": 4},
        "loss": "logistic",
        "regularizer": {"l2": 0.1},
        "clip": 1.0,
    },
    "algorithm": {"name": "dsgd", "alpha": 0.1},
    "network": {"topology": "ring", "link": {"latency": "10 ms"}},
    "compute": {"speed": "100 /s"},
    "privacy": {"noise": {"kind": "gaussian", "sigma": 1.0}},
    "observe": {"metrics": ["error", "consensus"]},
    "stop": {"rounds": 6},
}
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"


def played(folder, **changes):
    changes = {key.replace("__", "."): value for key, value in changes.items()}
    return desim.run(SCENARIO, out=folder, overrides=changes)


def manipulated(run, **changes):
    """The run as if its manifest had said something else."""
    place.write_manifest(run.directory, {**run.manifest, **changes})
    return desim.open(run.directory)


def rewritten(run, more):
    """The run as if its scenario had ended with more, the digest of it included."""
    scenario = run.directory / "scenario.yaml"
    text = scenario.read_text("utf-8") + more
    scenario.write_text(text, "utf-8")
    return manipulated(run, scenario_sha256=sha256(text.encode()).hexdigest())


def hostile(run):
    """The run of somebody who means harm: its manifest and scenario hold HTML."""
    changed = rewritten(run, f"# {HOSTILE}\n")
    return manipulated(changed, name=HOSTILE, reason=HOSTILE, status="failed")


def four(folder):
    """Two seeds of one scenario, another network, and the hostile one."""
    return [
        played(folder / "a"),
        played(folder / "b", seed=4),
        played(folder / "c", name="slow", network__link__latency="40 ms"),
        hostile(played(folder / "d")),
    ]
