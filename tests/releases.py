"""Release tables made by hand, for tests of who sees them and what they cost."""

import json
from typing import Any

import numpy as np
import pandas as pd
from effort import examples
from hypothesis import settings
from hypothesis import strategies as some

from desim.privacy.papers.theorems import claim_of

AGENTS = 4
ROWS = np.array([40, 50, 60, 70])
LAW = settings(deadline=None, max_examples=examples(20))
MECHANISMS = ("gaussian", "noisy-gradient", "laplace", "discrete-gaussian", "sparse-vector")


def table(rounds: int = 1, agents: int = 1, **columns: Any) -> pd.DataFrame:
    """Gaussian releases of sensitivity 1 and scale 20 to a coordinator; columns as given."""
    n = rounds * agents
    number = np.arange(n)
    plain = {
        "time": 0.5 * (number // agents + 1),
        "agent": number % agents,
        "round": number // agents + 1,
        "release": number + agents,
        "mechanism": "gaussian",
        "sensitivity": 1.0,
        "scale": 20.0,
        "sampling": np.nan,
        "seen_by": "coordinator",
        "delivered": 1,
    }
    frame = pd.DataFrame({name: np.broadcast_to(value, n) for name, value in plain.items()})
    frame = frame.assign(**columns)
    return frame.astype({"mechanism": "category", "seen_by": "category"})


def joined(*tables: pd.DataFrame) -> pd.DataFrame:
    """One table of several, however their categories differ."""
    words = {"mechanism": str, "seen_by": str}
    return pd.concat([one.astype(words) for one in tables], ignore_index=True)


@some.composite
def logs(draw: Any, mechanisms: tuple[str, ...] = MECHANISMS) -> pd.DataFrame:
    """Up to 30 releases of four agents on a graph, some lost, some at the same time."""
    n = draw(some.integers(1, 30))
    generator = np.random.default_rng(draw(some.integers(0, 2**32 - 1)))
    return table(
        n,
        time=np.sort(generator.integers(0, 12, n) * 0.25),
        agent=generator.integers(0, AGENTS, n),
        release=generator.permutation(n),
        mechanism=generator.choice(mechanisms, n),
        sensitivity=generator.choice([0.0, 0.5, 1.0, 2.0], n),
        scale=generator.choice([3.0, 8.0, 20.0, 50.0], n),
        seen_by="neighbours",
        delivered=generator.integers(0, 3, n),
    )


def claimed(method, releases, delta):
    """What the method's paper says of these releases, from inputs as a manifest holds them."""
    inputs = json.loads(json.dumps(method.claim_inputs(), allow_nan=False))
    return None if inputs is None else claim_of(inputs, releases, delta)
