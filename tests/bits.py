"""What a run came to, to the last bit: `python tests/bits.py NAME[:ENGINE] ...` prints it as JSON.

What comes after --wrong is played with uniform draws that lack half a step: `wrong` holds it.
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
    cut = names.index("--wrong") if "--wrong" in names else len(names)
    found = {name: bits_of(name) for name in names[:cut]}
    if cut < len(names):
        from desim.numerics import keys, plain

        keys._HALF_STEP = 0.0
        plain._namespaces.clear()  # plain Python reads names as they were when it was first called
        plain._twins.update(dict.fromkeys(plain._twins))
        found["wrong"] = {name: bits_of(name) for name in names[cut + 1 :]}
    print(json.dumps(found))
