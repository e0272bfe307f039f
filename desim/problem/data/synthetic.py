"""Generated tables; the last rows are for testing."""

from typing import Any

import numpy as np

from desim.errors import InputError
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.problem.data.table import Draw, Table


def generate(section: Any, agents: int | None, seed: int) -> Table:
    """Training rows for all agents, section.rows each, and the test rows."""
    if agents is None:
        raise InputError("problem.agents: missing; generated data need the number of agents")
    train = agents * section.rows
    tested = max(1, round(train * section.test / (1.0 - section.test))) if section.test else 0
    make = _classification if section.kind == "classification" else _regression
    A, b = make(section, agents, tested, seed)
    names = tuple(f"x{j}" for j in range(A.shape[1]))
    test = np.arange(train + tested) >= train
    return Table(A, b, names, dict(zip(names, A.T, strict=True)), ~test, test)


def _classification(section: Any, agents: int, tested: int, seed: int) -> tuple[Any, Any]:
    """scikit-learn's clusters at hypercube corners (Guyon 2003), labels -1, 1, none redundant."""
    from sklearn.datasets import make_classification

    state = keys.integers(seed, Stream.DATA, 2**31 - 1, round=Draw.GENERATOR)
    A, label = make_classification(
        n_samples=agents * section.rows + tested,
        n_features=section.dim - section.intercept,
        n_informative=section.informative,
        n_redundant=0,
        n_clusters_per_class=section.clusters,
        class_sep=section.separation,
        flip_y=section.flip,
        random_state=int(state[0]),
    )
    return A, 2.0 * label - 1.0


def _regression(section: Any, agents: int, tested: int, seed: int) -> tuple[Any, Any]:
    """Labels b = a.w + noise with a, w ~ N(0, I).

    Each agent's rows have their own address (test rows: agent -1), so that an agent more changes
    nobody else's; an intercept is one more coordinate of w.
    """
    features = section.dim - section.intercept
    parts = [(np.arange(agents), section.rows), (-1, tested)]

    def drawn(what: Draw, each: int) -> Any:
        """Normals for all rows, `each` of them for a row."""
        place = {"seed": seed, "stream": Stream.DATA, "round": what}
        return np.concatenate(
            [keys.normals(agent=i, size=m * each, **place).ravel() for i, m in parts]
        )

    A, noise = drawn(Draw.FEATURES, features).reshape(-1, features), drawn(Draw.NOISE, 1)
    w = keys.normals(seed, Stream.DATA, round=Draw.TRUTH, size=section.dim)
    return A, A @ w[section.intercept :] + section.intercept * w[0] + section.noise * noise
