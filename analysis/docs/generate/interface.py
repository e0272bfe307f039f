"""The Python interface, from docstrings: what `desim` offers, and what methods are written with."""

from inspect import getattr_static
from types import FunctionType

import desim
from analysis.docs.generate.markdown import code, escaped, paragraphs, table
from desim.engine.at_work import OWNED
from desim.engine.us import Cohort

FIRST = ("load", "run", "open")
FOLDED = ("Scenario",)  # the keys are in the reference of scenarios
OF_US = [  # verbs of a program and of its jobs; the rest is the engines'
    name
    for name in sorted({*OWNED, "noise_seed"} & set(dir(Cohort)))
    if isinstance(getattr_static(Cohort, name), FunctionType | property)
]
VERBS = (
    ("desim.methods.shared.method.Method", ":members:"),
    ("desim.engine.us.Cohort", f":members: {', '.join(OF_US)}\n   :inherited-members:"),
    (
        "desim.engine.hub.Hub",
        ":members: memory, start, open, invite, call, collect, publish, tell, inform, now",
    ),
    ("desim.engine.clients.Clients", ":members: noised, released, noise_key"),
    ("desim.privacy.ledger.ledger.Terms", ":members: of"),
)
RETURNED = (  # what functions of desim return, beside runs and studies
    "desim.runs.marked.Checkpoint",
    "desim.studies.compare.Comparison",
    "desim.studies.stored.StoredStudy",
    "desim.fidelity.errors.ClockErrors",
    "desim.measuring.calibration.Calibrated",
    "desim.ranking.robust.Robust",
)
FUNCTIONS = (
    "desim.privacy.ledger.mechanisms.terms",
    "desim.methods.shared.gradients.gradient",
    "desim.methods.shared.gradients.batch_gradient",
    "desim.conditions.matching.random_matching",
    "desim.conditions.matching.random_neighbours",
    "desim.conditions.mixing.mixing_matrix",
)


def interface() -> str:
    """Functions, classes, errors, and the verbs of methods."""
    names = [name for name in desim.__all__ if not name.startswith("_")]
    functions = [name for name in names if not name[0].isupper()]
    functions.sort(key=lambda name: (name not in FIRST, FIRST.index(name) if name in FIRST else 0))
    constants = [name for name in names if name.isupper()]
    classes = [name for name in names if name[0].isupper() and name not in constants]
    errors = [name for name in classes if issubclass(getattr(desim, name), BaseException)]
    nouns = [name for name in classes if name not in errors]
    return paragraphs(
        "## Functions",
        *(_directive("autofunction", f"desim.{name}") for name in functions),
        _directive("autofunction", "desim.measuring.calibration.calibrate_here"),
        "## Classes",
        *(_noun(name) for name in nouns),
        "## What comparisons, stored studies, calibrations and rankings are",
        *(_directive("autoclass", name, ":members:") for name in RETURNED),
        "## Constants",
        *(_constant(name) for name in constants),
        "## Errors\n\nEvery error that a user can cause is one of these, and "
        f"{code('exit_code')} is that of the command line.",
        *(_directive("autoexception", f"desim.{name}", ":show-inheritance:") for name in errors),
        "## For methods of your own",
        *(_directive("autoclass", name, option) for name, option in VERBS),
        _directive("autoclass", "desim.privacy.ledger.terms.View", ":members:\n   :undoc-members:"),
        *(_directive("autofunction", name) for name in FUNCTIONS),
    )


def _constant(name: str) -> str:
    known = getattr(desim, name).items()
    cells = {key: (about,) if isinstance(about, str) else about for key, about in known}
    rows = [(code(key), *map(escaped, about)) for key, about in cells.items()]
    head = ("", "what it is", "seconds", "value")[: len(rows[0])]
    return paragraphs(f"### desim.{name}", table(head, rows))


def _noun(name: str) -> str:
    return _directive("autoclass", f"desim.{name}", "" if name in FOLDED else ":members:")


def _directive(kind: str, name: str, option: str = "") -> str:
    body = f".. {kind}:: {name}" + (f"\n   {option}" if option else "")
    return f"```{{eval-rst}}\n{body}\n```"
