"""A simulation whose course is staged: it plays a fixed log and ends as it is told.

As a program: `python staged.py COURSE ARGUMENTS...` is the command line of desim on that
simulation, for tests that send signals to it.
"""

import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from desim.engine.world import Progress
from desim.errors import Diverged
from desim.log.event_log import Outcome
from desim.network.conditions.devices import speed_model
from desim.network.conditions.policy import Policy
from desim.network.timeline.computations import AT_ONCE
from desim.numerics.distributions import Distribution

AGENTS = 3
DEVICES = "devices: a gradient of one row takes 1 ms\n"  # as commands say on stderr
SCENARIO = {
    "name": "staged",
    "seed": 3,
    "problem": {
        "agents": AGENTS,
        "data": {"source": "synthetic", "kind": "classification", "rows": 4, "dim": 5},
        "loss": "logistic",
        "regularizer": {"l2": 0.5},
    },
    "algorithm": {"name": "fed-plt", "rho": 0.3},
    "stop": {"rounds": 4},
}
TEXT = """
name: staged
problem:
  agents: 3
  data: {source: synthetic, kind: classification, rows: 4, dim: 5}
  loss: logistic
  regularizer: {l2: 0.5}
algorithm: {name: fed-plt, rho: 0.3}
stop: {rounds: 4}
"""


def events(round_):
    """One round: three deliveries, agent 2 last but in round 1, and the coordinator goes on."""
    last = 0 if round_ == 1 else 2
    time_ = np.array([0.1, 0.2, 0.4, 0.4]) + round_
    peer = [1, 2 - last, last, -1]
    return {
        "time": time_,
        "seq": np.arange(4) + 4 * (round_ - 1),
        "kind": ["deliver", "deliver", "deliver", "aggregate"],
        "agent": np.full(4, -1),
        "peer": np.array(peer),
        "round": np.full(4, round_),
        "bytes": np.array([40, 40, 40, 0]),
        "seconds": np.zeros(4),
        "value": np.zeros(4),
        "release": np.full(4, -1),
    }


def metrics(round_):
    """Network rows of error and accuracy, and one agent's own error, which no curve may show."""
    return {
        "time": np.full(3, round_ + 0.4),
        "round": np.full(3, round_),
        "metric": ["accuracy", "error", "error"],
        "agent": [-1, -1, 0],
        "value": [1.0 - 0.5**round_, 0.5**round_, 1e-9],
    }


class Staged:
    """Stands in for a simulation; `course` says how it ends."""

    engine = "cohort"
    why = "staged"
    origin = None
    listeners = ()
    method = SimpleNamespace(
        noise=None,
        warnings=["staged: nothing is computed"],
        kind="coordinator",
        once=True,
        timed=False,
        trusts="",
        claim_inputs=lambda: None,
        claimed=lambda: None,
        planned=lambda k: None,
    )
    observation = SimpleNamespace(iterates=False)
    problem = SimpleNamespace(
        digest=lambda: "0" * 64,
        agents=AGENTS,
        rows=np.array([4, 4, 4]),
        A=np.zeros((12, 5)),
        dim=5,
        sites=(),
        start=np.array([0, 4, 8, 12]),
        row_norm=np.inf,
        precision="float64",
    )

    settings = SimpleNamespace(
        tree=None,
        problem=problem,
        speeds=speed_model(Distribution(0, 1000.0), AGENTS, 0),
        rounds=4,
        horizon=np.inf,
        churn=None,
        trust=None,
        log="all",
        policy=Policy(),
        participation=SimpleNamespace(least=AGENTS),
        links=None,
        uplinks=None,
        downlinks=None,
        intake=AT_ONCE,
    )

    def __init__(self, course="done", rounds=4):
        self.course = course
        self.rounds = rounds

    def play(self, tables, progress, **_):
        """Flush after every round; `endless` courses go on until a signal comes."""
        round_ = 0
        try:
            while round_ < self.rounds or self.course in ("endless", "stuck"):
                round_ += 1
                tables.append("events", events(round_))
                tables.append("metrics", metrics(round_))
                if self.course == "endless":
                    time.sleep(0.02)
                if self.course == "stuck" and round_ == 3:
                    time.sleep(600)
                progress(Progress(round_ + 0.4, None, round_, self.rounds, None))
        except KeyboardInterrupt:
            if self.course == "stuck":
                raise
            return self.outcome("stopped", round_, "interrupted by Ctrl-C")
        return self.ended(round_)

    def ended(self, round_):
        if self.course == "diverged":
            raise Diverged("diverged: agent 1, round 4")
        if self.course == "failed":
            return self.outcome("failed", round_, "nobody can go on")
        if self.course == "full":
            raise OSError(28, "No space left on device")
        if self.course == "broken":
            raise ZeroDivisionError("a bug")
        return self.outcome("done", round_, "4 rounds done")

    def outcome(self, status, round_, reason):
        shape = (round_ + 1, AGENTS, 5)
        return Outcome(
            status,
            reason,
            time=round_ + 0.4,
            rounds=round_,
            state={"x": np.full(shape[1:], 2.0)},
            iterates=np.arange(np.prod(shape), dtype=float).reshape(shape),
            model=np.ones((round_ + 1, 5)),
            counts={"send": np.int64(3 * round_)},
            warnings=["rho is large"],
        )


def main():
    """The command line of desim, on a staged simulation."""
    import desim.log.parquet
    import desim.runs.recording
    from desim.interface.cli import main as command_line

    desim.log.parquet.PART_SECONDS = -1.0

    signal.signal(signal.SIGINT, signal.default_int_handler)
    course, *arguments = sys.argv[1:]
    desim.runs.recording.build = lambda scenario: Staged(course)
    command_line(arguments)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
