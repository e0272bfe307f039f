"""Flower's messages as desim needs them: copies, true sizes, models as vectors, and what they say.

Flower's own serialisation gives the bytes; names of private attributes that have to be set are
those of flwr 1.42, and stand here alone.
"""

import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.common.serde import message_to_proto

from desim.errors import RunError

SERVER = 1  # the node id of whoever Flower calls SuperLink
RUN = 0x1F2E3D4C5B6A7988  # a run id as long as those that Flower draws
EPOCH = 1.7e9  # s since 1970 at which the first message is made
EXAMPLES = ("num-examples", "num_examples")
LEGACY = "fitins.parameters"  # the name of a classic client's model in a message


def node_ids(agents: int) -> list[int]:
    """Ids (agents,) of nodes, all of the length of Flower's own, which are drawn from 64 bits."""
    words = (hashlib.sha256(f"node {i}".encode()).digest() for i in range(agents))
    return [(1 << 62) | int.from_bytes(word[:7], "big") for word in words]


def numbered(message: Any, number: int) -> str:
    """Give a message the id that a SuperLink would; 64 letters, as these have."""
    found = hashlib.sha256(f"message {number}".encode()).hexdigest()
    message.metadata.__dict__["_message_id"] = found
    return found


def copied(message: Any) -> Any:
    """A message of its own, as whoever receives it has one: mods change what they are given."""
    content = copy.deepcopy(message.content)
    return Message(content=content, metadata=copy.deepcopy(message.metadata))


def bits(message: Any) -> int:
    """How long a message is on the wire, as Flower's protocol buffers have it."""
    return 8 * int(message_to_proto(message).ByteSize())


def stamped(message: Any, number: int) -> None:
    """Say when a message was made, by its number: a wall clock would not say the same twice."""
    message.metadata.__dict__["_created_at"] = EPOCH + number


# Models.


def vector(content: Any) -> Any:
    """The arrays (dim,) of the first array record that has any, as float64; None without one."""
    for record in content.array_records.values():
        arrays = [_numbers(one.numpy()) for one in record.values()]
        if sum(map(len, arrays)):
            return np.concatenate(arrays)
    return None


def of_parameters(arrays: Sequence[Any]) -> Any:
    """The same of a classic client's list of arrays; None without any."""
    rows = [_numbers(one) for one in arrays]
    return np.concatenate(rows) if sum(map(len, rows)) else None


def _numbers(array: Any) -> Any:
    """An array as float64 (n,); RunError for one of anything but real numbers."""
    with suppress(TypeError, ValueError):
        if np.asarray(array).dtype.kind != "c":
            return np.asarray(array, float).ravel()
    text = f"found an array of {np.asarray(array).dtype} in a message"
    raise RunError(f"flower: {text}; allowed: real numbers")


def with_vector(record: Any, x: Any) -> Any:
    """An array record of the names, shapes and types of `record`, with the numbers x (dim,)."""
    arrays, low = {}, 0
    for name, one in record.items():
        like = one.numpy()
        part = np.asarray(x[low : low + like.size]).reshape(like.shape)
        whole = like.dtype.kind in "iub"
        arrays[name] = Array(np.asarray(np.rint(part) if whole else part).astype(like.dtype))
        low += like.size
    return ArrayRecord(arrays)


# What replies say of themselves.


def figures(content: Any) -> dict[str, float]:
    """All single numbers of metrics and configurations, by name; the first of each name."""
    found: dict[str, float] = {}
    for key, value in _entries(content):
        if isinstance(value, int | float) and not isinstance(value, bool):
            found.setdefault(key, float(value))
    return found


def _entries(content: Any) -> Iterator[tuple[str, Any]]:
    for records in (content.metric_records, content.config_records):
        for name, record in records.items():
            yield from record.items() if not name.endswith(".status") else ()


def examples(said: Mapping[str, float]) -> float | None:
    """How many examples a reply speaks of, None where it does not say."""
    return next((said[key] for key in EXAMPLES if key in said), None)


def named(said: Mapping[str, float], word: str, exact: str | None) -> float | None:
    """The number of that name, or the first whose name has the word in it."""
    if exact is not None:
        return said.get(exact)
    ranked = [one for one in (word, f"eval_{word}", f"eval-{word}") if one in said]
    ranked += [one for one in said if word in one.lower()]
    return said[ranked[0]] if ranked else None


def evaluation(content: Any, x: Any) -> Any:
    """The content of a message that asks to evaluate x (dim,), made from one that trains a model.

    A classic client's records have other names there.
    """
    if LEGACY in content.array_records:
        from flwr.common import EvaluateIns, ndarrays_to_parameters
        from flwr.compat.common import recorddict_compat as compat

        record = with_vector(content.array_records[LEGACY], x)
        arrays = [one.numpy() for one in record.values()]
        asked = EvaluateIns(ndarrays_to_parameters(arrays), {})
        return compat.evaluateins_to_recorddict(asked, keep_input=False)
    found = copy.deepcopy(content)
    for name, record in content.array_records.items():
        if len(record):
            found[name] = with_vector(record, x)
            break
    return found if isinstance(found, RecordDict) else RecordDict(found)
