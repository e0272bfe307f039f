"""What a run came to, to the last bit: `python tests/bits.py NAME[:ENGINE] ...` prints it as JSON.

With --wrong first, uniform draws lack half a step.
"""

import hashlib
import json
import sys

import numpy as np

import desim
from desim.errors import DesimError

TABLES = ("events", "metrics", "releases")
UNTOLD = ("play_seconds",)


def bits_of(case):
    """Digests of tables and arrays, and the words of the manifest, of a case NAME[:ENGINE]."""
    from cases import CASES

    name, _, engine = case.partition(":")
    try:
        run = desim.run(CASES[name], overrides={"engine": engine or "auto"})
    except DesimError as error:
        return {"refused": str(error)}
    manifest, found = run.manifest, {}
    for table in TABLES:
        frame = getattr(run, table)
        columns = [f"{name} {frame[name].dtype} {_bytes(frame[name])}" for name in frame]
        found[table] = hashlib.sha256("\n".join(columns).encode()).hexdigest()
    for name in manifest["arrays"]:
        arrays = run.store.arrays(name)
        found[name] = {key: _bytes(array) for key, array in arrays.items()}
    counts = {key: n for key, n in manifest["counts"].items() if key not in UNTOLD}
    told = [manifest[key] for key in ("status", "reason", "time", "rounds", "engine", "warnings")]
    return json.loads(json.dumps([found, told, counts]))  # which knows Python's own numbers alone


def _bytes(column):
    values = np.asarray(column)
    values = values.astype(str) if values.dtype == object else values
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


if __name__ == "__main__":
    names = sys.argv[1:]
    if names[0] == "--wrong":
        from desim.numerics import keys

        keys._HALF_STEP, names = 0.0, names[1:]
    print(json.dumps({name: bits_of(name) for name in names}))
