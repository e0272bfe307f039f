"""Rows dealt by a partitioner of flwr-datasets, of any name and with its own arguments.

The library sees the training rows alone, as a data set of their labels (numbers of classes, where
there are classes) under the name `label`, and of the column that `partition_by` names.
"""

import io
import warnings
from collections.abc import Mapping
from contextlib import redirect_stderr
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError, raised, refusal, require

WHERE = "problem.partition.flwr"
LABEL = "label"  # what partitioners call the labels of rows
ROW = "row number"
BY = "partition_by"
REFUSED = {  # kinds of partitioners that have nothing to do here, and why
    "Vertical": "deals columns, and agents of desim have all columns of their own rows",
    "IdToSize": "takes a function, which a scenario cannot hold",
}


def flower_shares(
    name: str, arguments: Mapping[str, Any], columns: Mapping[str, NDArray[Any]],
    agents: int | None, seed: int,
) -> list[NDArray[np.int64]]:  # fmt: skip
    """The row numbers of each agent, as the partitioner `name` deals them, ascending.

    columns: what it may go by, (rows,) each; agents: of the problem, None for those that the
    partitioner comes to; seed: for draws, where `arguments` have none. Rows may belong to nobody.
    InputError for unknown names and arguments, for what the library refuses, with its words, and
    where an agent gets no row.
    """
    known = _known()
    if name not in known:
        whys = [why for head, why in REFUSED.items() if name.startswith(head)]
        if whys:
            raise InputError(f"{WHERE}: found {name}, which {whys[0]}; allowed: {', '.join(known)}")
        raise InputError(f"{WHERE}: {refusal(name, ', '.join(known), known)}")
    settings = _completed(name, [*signature(known[name]).parameters], arguments, agents, seed)
    shares = _dealt(name, known[name], settings, columns)
    if agents not in (None, len(shares)):
        text = f"{name} deals to {len(shares)} agents"
        raise InputError(f"problem.agents: found {agents}; allowed: {len(shares)}, as {text}")
    for agent, rows in enumerate(shares):
        if not len(rows):
            raise InputError(f"{WHERE}: {name} leaves agent {agent} without rows; use fewer agents")
    return shares


def _known() -> dict[str, Any]:
    """Partitioners that deal rows, by name."""
    require(WHERE, "flwr_datasets", "partitioners")
    from flwr_datasets import partitioner as library

    names = [one for one in library.__all__ if one != "Partitioner"]
    return {one: getattr(library, one) for one in names if not one.startswith((*REFUSED,))}


def _completed(
    name: str, keys: list[str], arguments: Mapping[str, Any], agents: int | None, seed: int
) -> dict[str, Any]:
    """Arguments with those that the problem says: number of agents, labels, seed."""
    for key in arguments:
        if key not in keys:
            raise InputError(f"{WHERE}.{name}: {refusal(key, ', '.join(keys), keys)}")
    settings = {"num_partitions": agents, BY: LABEL, "seed": seed, **arguments}
    if "num_partitions" in keys and settings["num_partitions"] is None:
        raise InputError("problem.agents: missing; say how many agents the rows are dealt to")
    arrays = {"distribution_array"}  # those which the library takes as arrays alone
    return {
        key: np.array(one) if key in arrays else one for key, one in settings.items() if key in keys
    }


def _dealt(
    name: str, kind: Any, settings: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]
) -> list[NDArray[np.int64]]:
    """What the library deals; InputError with its own words where it refuses."""
    from datasets import Dataset

    by = settings.get(BY, LABEL)
    if by not in columns:
        raise InputError(f"{WHERE}.{name}.{BY}: {refusal(by, ', '.join(columns), [*columns])}")
    table = {by: columns[by], ROW: np.arange(len(columns[by]))}
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):  # bars of progress
            warnings.simplefilter("ignore")  # such as: a draw was tried again
            partitioner = kind(**settings)
            partitioner.dataset = Dataset.from_dict(table)
            number = range(partitioner.num_partitions)
            parts = [np.array(partitioner.load_partition(i)[ROW], np.int64) for i in number]
    except Exception as error:  # whatever it raises of arguments and rows
        raise InputError(f"{WHERE}.{name}: flwr-datasets raised {raised(error)}") from error
    return [np.sort(one) for one in parts]
