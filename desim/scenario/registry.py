"""The algorithms by name: desim's own, installed ones (`desim.plugins`), a scenario's files."""

import importlib
import importlib.util
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from desim.algorithms.method import Method
from desim.errors import InputError, spelling

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
    "dp-nfl": "desim.algorithms.dp_nfl:DpNfl",
    "zcdp-subgradient": "desim.algorithms.zcdp_subgradient:ZcdpSubgradient",
    "p-admm": "desim.algorithms.p_admm:PADMM",
    "admm": "desim.algorithms.admm:ADMM",
    "dsgd": "desim.algorithms.dsgd:DSGD",
    "sdm-dsgd": "desim.algorithms.sdm_dsgd:SDMDSGD",
    "functional-mechanism": "desim.algorithms.functional_mechanism:FunctionalMechanism",
    "pflr": "desim.algorithms.pflr:PFLR",
    "pdfc": "desim.algorithms.pdfc:PDFC",
    "adfc": "desim.algorithms.adfc:ADFC",
    "m-admm": "desim.algorithms.m_admm:MADMM",
    "r-admm": "desim.algorithms.r_admm:RADMM",
    "pr-admm": "desim.algorithms.pr_admm:PRADMM",
    "pp-admm": "desim.algorithms.pp_admm:PPADMM",
    "ipp-admm": "desim.algorithms.ipp_admm:IPPADMM",
    "q-dpsgd-1": "desim.algorithms.q_dpsgd_1:QDPSGD1",
    "q-dpsgd-2": "desim.algorithms.q_dpsgd_2:QDPSGD2",
    "pvp": "desim.algorithms.pvp:PVP",
    "dvp": "desim.algorithms.dvp:DVP",
    "d-zoa": "desim.algorithms.d_zoa:DZOA",
    "or-zo": "desim.algorithms.or_zo:ORZO",
    "zoo-admm": "desim.algorithms.zoo_admm:ZOOADMM",
    "gradient-descent": "desim.algorithms.gradient_descent:GradientDescent",
}
NEEDED = ("kind", "summary", "paper", "Parameters")  # of every method
_plugged: dict[str, type[Method]] = {}


@cache
def _installed() -> dict[str, type[Method]]:
    """Methods of installed packages that declare an entry point in group desim.plugins."""
    found: dict[str, type[Method]] = {}
    for entry in entry_points(group="desim.plugins"):
        loaded = entry.load()
        module = sys.modules.get(getattr(loaded, "__module__", ""), loaded)
        found.update(_methods(module))
    return found


def _methods(module: Any) -> dict[str, type[Method]]:
    """Methods that a module defines itself."""
    return {
        value.name: value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Method)
        and value.__module__ == module.__name__
        and hasattr(value, "name")
    }


def names() -> tuple[str, ...]:
    """Names of all algorithms that are known now."""
    return (*OWN, *sorted({**_installed(), **_plugged}))


def get(name: str) -> type[Method]:
    """Return the class of an algorithm; InputError with the nearest spelling if there is none."""
    if name in _plugged:
        return _plugged[name]
    if name in OWN:
        module, attribute = OWN[name].split(":")
        found: type[Method] = getattr(importlib.import_module(module), attribute)
        return found
    if name in _installed():
        return _installed()[name]
    raise InputError(
        f"algorithm.name: found {name!r}; allowed: {', '.join(names())}{spelling(name, names())}"
    )


def load_plugin(path: Path) -> list[str]:
    """Import a file and register the Method subclasses that it defines; return their names."""
    if not path.is_file():
        raise InputError(f"plugins: {path} does not exist")
    label = f"desim_plugin_{path.stem}_{abs(hash(path.resolve())):x}"
    spec = importlib.util.spec_from_file_location(label, path)
    if spec is None or spec.loader is None:
        raise InputError(f"plugins: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[label] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[label]
        raise InputError(f"plugins: {path} raised {type(error).__name__}: {error}") from error
    found = _methods(module)
    for name, method in found.items():
        lacking = [one for one in NEEDED if not hasattr(method, one)]
        if not isinstance(name, str) or lacking:
            wanting = ", ".join(lacking) or "a name that is text"
            raise InputError(f"plugins: {path}: {method.__name__} lacks {wanting}")
        if name in OWN:
            raise InputError(f"plugins: {path} defines {name!r}, a name that desim uses itself")
    _plugged.update(found)
    return sorted(found)
