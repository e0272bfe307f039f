"""Algorithms, losses and accountants by name: desim's own, those of packages and plug-in files.

A package has an entry point in group desim.plugins that names a module; a file is listed under
`plugins:` in a scenario. What counts is the subclasses of Method, ScalarLoss and Accountant that
they define.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from desim.algorithms.method import Method
from desim.errors import InputError, raised, refusal, spelling
from desim.fields import Strict
from desim.losses import CODES
from desim.plugged import FUNCTIONS, ScalarLoss
from desim.privacy.plugged import Accountant

OWN = {
    "fed-plt": "desim.algorithms.fed_plt:FedPLT",
    "fed-pd": "desim.algorithms.fed_pd:FedPD",
    "fedlin": "desim.algorithms.fedlin:FedLin",
    "fedavg": "desim.algorithms.fedavg:FedAvg",
    "scaffold": "desim.algorithms.scaffold:Scaffold",
    "tamuna": "desim.algorithms.tamuna:Tamuna",
    "led": "desim.algorithms.led:Led",
    "5gcs": "desim.algorithms.five_gcs:FiveGCS",
    "dp-admm": "desim.algorithms.dp_admm:DPADMM",
    "zcdp-nfl": "desim.algorithms.zcdp_nfl:ZcdpNfl",
    "dp-nfl": "desim.algorithms.zcdp_nfl:DpNfl",
    "zcdp-subgradient": "desim.algorithms.zcdp_subgradient:ZcdpSubgradient",
    "p-admm": "desim.algorithms.p_admm:PADMM",
    "admm": "desim.algorithms.p_admm:ADMM",
    "dsgd": "desim.algorithms.dsgd:DSGD",
    "sdm-dsgd": "desim.algorithms.sdm_dsgd:SDMDSGD",
    "functional-mechanism": "desim.algorithms.functional_mechanism:FunctionalMechanism",
    "pflr": "desim.algorithms.functional_mechanism:PFLR",
    "pdfc": "desim.algorithms.functional_mechanism:PDFC",
    "adfc": "desim.algorithms.functional_mechanism:ADFC",
    "m-admm": "desim.algorithms.dvp:MADMM",
    "r-admm": "desim.algorithms.r_admm:RADMM",
    "pr-admm": "desim.algorithms.pr_admm:PRADMM",
    "pp-admm": "desim.algorithms.pp_admm:PPADMM",
    "ipp-admm": "desim.algorithms.ipp_admm:IPPADMM",
    "q-dpsgd-1": "desim.algorithms.q_dpsgd_1:QDPSGD1",
    "q-dpsgd-2": "desim.algorithms.q_dpsgd_2:QDPSGD2",
    "pvp": "desim.algorithms.p_admm:PVP",
    "dvp": "desim.algorithms.dvp:DVP",
    "d-zoa": "desim.algorithms.d_zoa:DZOA",
    "or-zo": "desim.algorithms.or_zo:ORZO",
    "zoo-admm": "desim.algorithms.zoo_admm:ZOOADMM",
    "gradient-descent": "desim.algorithms.gradient_descent:GradientDescent",
}
OWN_LOSSES = (*CODES, "softmax", "mlp")
NEEDED = ("kind", "summary", "paper", "Parameters")  # of every method
PROGRAMS = {"coordinator": "coordinator", "graph": "agents", "central": "agents"}  # by kind
GROUP = "desim.plugins"  # of entry points
Known = dict[str, Any]  # classes by name
_plugged: Known = {}  # of files: methods
_plugged_losses: Known = {}
_plugged_accountants: Known = {}


@cache
def _installed() -> tuple[Known, Known, Known]:
    """Methods, losses and accountants of packages, whose entry points in GROUP name a module."""
    found: tuple[Known, Known, Known] = ({}, {}, {})
    for entry in entry_points(group=GROUP):
        where = f"plug-in {entry.name} ({entry.value})"
        with _blamed(f"{where}:"):
            loaded = entry.load()
        module = sys.modules.get(getattr(loaded, "__module__", ""), loaded)
        for known, more in zip(found, defined(module, where), strict=True):
            known.update(more)
    return found


def defined(module: Any, where: str) -> tuple[Known, Known, Known]:
    """Methods, losses and accountants of a module's own; InputError for what lacks something."""
    own = [one for one in vars(module).values() if isinstance(one, type)]
    own = [one for one in own if one.__module__ == module.__name__ and hasattr(one, "name")]
    methods = _by_name([one for one in own if issubclass(one, Method)], where)
    losses = _by_name([one for one in own if issubclass(one, ScalarLoss)], where)
    for name, one in (*methods.items(), *losses.items()):
        needed = NEEDED if issubclass(one, Method) else ("summary",)
        lacking = [key for key in needed if not hasattr(one, key)]
        if issubclass(one, ScalarLoss):
            lacking += [key for key in FUNCTIONS if key in one.__abstractmethods__]
        if lacking:
            raise InputError(f"{where}: {one.__name__} lacks {', '.join(lacking)}")
        if issubclass(one, Method):
            _shaped(one, f"{where}: {one.__name__}")
        if name in (*OWN, *OWN_LOSSES):
            raise InputError(f"{where} defines {name!r}, a name that desim uses itself")
    return methods, losses, _accountants(own, where)


def _accountants(own: list[Any], where: str) -> Known:
    """The accountants among a module's classes."""
    found = _by_name([one for one in own if issubclass(one, Accountant)], where)
    for one in found.values():
        lacking = [] if isinstance(getattr(one, "summary", None), str) else ["summary"]
        lacking += sorted(one.__abstractmethods__)
        if lacking:
            raise InputError(f"{where}: {one.__name__} lacks {', '.join(lacking)}")
    return found


def _shaped(method: type[Method], where: str) -> None:
    """Raise InputError for a method whose kind, program or parameters are none."""
    if not isinstance(method.kind, str) or method.kind not in PROGRAMS:
        raise InputError(f"{where}.kind: {refusal(method.kind, ', '.join(PROGRAMS))}")
    if not callable(getattr(method, PROGRAMS[method.kind], None)):
        raise InputError(f"{where} lacks its program, {PROGRAMS[method.kind]}")
    if not (isinstance(method.Parameters, type) and issubclass(method.Parameters, Strict)):
        allowed = "a class that inherits from desim.fields.Strict"
        raise InputError(f"{where}.Parameters: {refusal(method.Parameters, allowed)}")


def _by_name(classes: list[Any], where: str) -> Known:
    found: Known = {}
    for one in classes:
        if not isinstance(one.name, str):
            raise InputError(f"{where}: {one.__name__} lacks a name that is text")
        if (other := found.setdefault(one.name, one)) is not one:
            both = f"{other.__name__} and {one.__name__}"
            raise InputError(f"{where}: {both} have the same name, {one.name!r}")
    return found


def names() -> tuple[str, ...]:
    """Names of all algorithms that are known now."""
    return (*OWN, *sorted({**_installed()[0], **_plugged}))


def losses() -> dict[str, type[ScalarLoss]]:
    """The losses of plug-ins that are known now, by name."""
    return {**_installed()[1], **_plugged_losses}


def accountants() -> dict[str, type[Accountant]]:
    """The accountants of plug-ins that are known now, by name."""
    return {**_installed()[2], **_plugged_accountants}


def accountant(name: str, key: str) -> type[Accountant]:
    """The class of a plug-in's accountant; InputError, of `key`, where there is none."""
    known = accountants()
    if name in known:
        return known[name]
    allowed = ", ".join(known) or "none, as no plug-in that is known here brings any"
    raise InputError(f"{key}: {refusal(name, allowed, tuple(known))}")


def get(name: str) -> type[Method]:
    """Return the class of an algorithm; InputError with the nearest spelling if there is none."""
    found: type[Method] | None
    if name in OWN and name not in _plugged:
        module, attribute = OWN[name].split(":")
        found = getattr(importlib.import_module(module), attribute)
    else:
        found = _plugged.get(name) or _installed()[0].get(name)
    if found is not None:
        return found
    raise InputError(
        f"algorithm.name: found {name!r}; allowed: {', '.join(names())}{spelling(name, names())}"
    )


def load_plugin(path: Path) -> list[str]:
    """Import a file and register what it defines; return the names of its methods and losses."""
    module = _imported(path)
    methods, found, accountants = defined(module, f"plugins: {path}")
    _plugged.update(methods)
    _plugged_losses.update(found)
    for name, one in accountants.items():
        other = _plugged_accountants.get(name)
        where = getattr(sys.modules.get(other.__module__), "__file__", path) if other else path
        if Path(where) != path:
            raise InputError(f"plugins: {path}: accountant {name!r} is defined in {where}, too")
        _plugged_accountants[name] = one
    return sorted([*methods, *found])


def _imported(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"plugins: {path} does not exist")
    label = f"desim_plugin_{path.stem}_{abs(hash(path.resolve())):x}"
    spec = importlib.util.spec_from_file_location(label, path)
    if spec is None or spec.loader is None:
        raise InputError(f"plugins: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[label] = module
    try:
        with _blamed(f"plugins: {path}"):
            spec.loader.exec_module(module)
    except InputError:
        del sys.modules[label]
        raise
    return module


@contextmanager
def _blamed(where: str) -> Iterator[None]:
    """Turn whatever the import of a plug-in ends with, other than by Ctrl-C, into InputError."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise InputError(f"{where} raised {raised(error)}") from error
