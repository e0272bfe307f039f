"""What replies reveal: the noise of Flower's mods as terms of the ledger, where it is known.

LocalDpMod shortens what training changed to a norm C and adds N(0, s^2 I) with s = D sqrt(2 ln(1.25
/ delta)) / epsilon, as its documentation has it: two such values differ by 2 C at most, whatever
becomes of the node's examples, so that a reply is (2 C / s)-GDP. Its own `sensitivity` D is taken
for the noise alone. That holds of what leaves the mod: where one of the app's own is outside of it,
or a reply holds bytes or lists beside its arrays, as in a secure sum, nothing is known of it.
Everything else is a release without noise, with the reason in a warning.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from desim.flower.central import ASSUMED, Central, hides
from desim.method import Mechanism, Terms, View, plain

Price = Any  # "bare", "nothing", or the mod whose noise a reply has
HEAD = "flower: epsilon"


class Charges:
    """Which price a reply has.

    count: everything, or models: metrics, and replies without arrays, are left out; central: the
    strategy that adds noise at the server, whose averages have rows of their own, see `central`.
    """

    def __init__(self, parts: Any, agents: int, count: str, central: Central | None = None) -> None:
        self.agents, self.count = agents, count
        self.mods = _local(parts.client)
        self.noised = bool(self.mods) and count == "models"
        self.warnings: list[str] = []
        if central is not None:
            self.warnings.append(f"{HEAD} {central.says}")
        if not self.mods and central is None:
            text = "infinite, as no mod that is known adds noise at the nodes"
            known = "LocalDpMod, outside of which are none but Flower's own mods"
            self.warnings.append(f"{HEAD} is {text}; known: {known}")
        elif self.mods and count == "everything":
            text = "infinite, as metrics in replies have no noise; charge: models leaves them out"
            self.warnings.append(f"{HEAD} is {text}")
        elif self.mods:
            text = "leaves out metrics, which replies have without noise"
            self.warnings.append(f"{HEAD} {text}; assumed of the app: {ASSUMED}")

    def of(self, kind: str, reply: Any) -> Price:
        """The price of a reply to a message of a type, such as train, or train.long."""
        if self.count != "models":
            return "bare"
        if reply.has_content() and opaque(reply.content):
            text = "infinite, as replies hold bytes or lists, of which no noise is known"
            self.warnings.append(f"{HEAD} is {text}")
            return "bare"
        if not (reply.has_content() and len(reply.content.array_records) > 0):
            return "nothing"
        price = self.mods.get(kind, "bare")
        records = reply.content.array_records.values()
        if price != "bare" and not all(hides(one, _scale(price)) for one in records):
            text = "infinite, as numbers of models are no real ones, or round noise to nothing"
            self.warnings.append(f"{HEAD} is {text}")
            return "bare"
        return price

    def terms(self, price: Price) -> Terms | None:
        """The terms (agents,) of a price."""
        if price == "bare":
            return None
        if price == "nothing":
            return plain(self.agents, View.COORDINATOR, 0.0)
        mod, ones = price, np.ones(self.agents)
        basis = "flower: LocalDpMod clips what training changed; metrics are left out"
        return Terms(
            Mechanism.CLIPPED_GAUSSIAN, View.COORDINATOR, 2.0 * mod.clipping_norm * ones,
            _scale(mod) * ones, np.full(self.agents, np.nan), basis=basis,
        )  # fmt: skip


def _local(client: Any) -> Mapping[str, Any]:
    """The LocalDpMod of each type of message to train; none unless they all have one.

    A function goes by train.NAME, and one without a name also by train alone; Flower's classic mod
    passes on what comes by any other name. A ClientApp of one's own class may do as it likes.
    """
    if not type(client).__module__.startswith("flwr."):
        return {}
    functions = {
        name: function
        for name, function in client._registered_funcs.items()
        if name.startswith("train.")
    }
    if (plain_one := functions.get("train.default")) is not None:
        functions["train"] = plain_one
    if client._call is not None:
        functions = {"train": client._call}
    found = {name: _outermost(function) for name, function in functions.items()}
    if any(one is None for one in found.values()):
        return {}
    classic = "flwr.client."
    return {
        name: one for name, one in found.items()
        if name == "train" or not type(one).__module__.startswith(classic)
    }  # fmt: skip


def _scale(mod: Any) -> float:
    """The deviation of a LocalDpMod's noise; nan or inf where its numbers have none."""
    with np.errstate(all="ignore"):
        deviation = np.sqrt(2.0 * np.log(np.float64(1.25) / mod.delta)) / mod.epsilon
    return float(mod.sensitivity * deviation)


def _outermost(function: Any) -> Any:
    """The LocalDpMod of a function, None where none is, or where another's mod is outside of it."""
    for mod in _chain(function):
        if not str(getattr(mod, "__module__", "")).startswith("flwr."):
            return None
        if type(mod).__name__ == "LocalDpMod":
            return mod
    return None


def chains(client: Any) -> list[list[Any]]:
    """The mods around each function of a ClientApp that trains, the outermost first.

    None is known around those of a ClientApp of one's own class.
    """
    if not type(client).__module__.startswith("flwr."):
        return [[]]
    named = client._registered_funcs.items()
    functions = [function for name, function in named if name.startswith("train.")]
    return [[*_chain(one)] for one in (functions if client._call is None else [client._call])]


def masked(mods: list[list[Any]]) -> bool:
    """Whether Flower's mods of a secure sum are among those of `chains`."""
    names = {getattr(one, "__name__", "") for chain in mods for one in chain}
    return bool(names & {"secaggplus_mod", "secagg_mod"})


def opaque(content: Any) -> bool:
    """Whether metrics or configurations hold bytes or lists, which may be a model as well."""
    records = *content.metric_records.values(), *content.config_records.values()
    return any(isinstance(one, bytes | list) for record in records for one in record.values())


def _chain(function: Any) -> Any:
    """The mods around a function, the outermost first, as Flower wraps them in closures."""
    while (code := getattr(function, "__code__", None)) is not None:
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        own = {name: cell.cell_contents for name, cell in cells}
        if "_mod" not in own or "_ffn" not in own:
            return
        yield own["_mod"]
        function = own["_ffn"]
