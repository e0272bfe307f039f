"""What replies reveal: the noise of Flower's mods as terms of the ledger, where it is known.

LocalDpMod shortens what training changed to a norm C and adds N(0, s^2 I) with s = D sqrt(2 ln(1.25
/ delta)) / epsilon, as its documentation has it: two such values differ by 2 C at most, whatever
becomes of the node's examples, so that a reply is (2 C / s)-GDP. Its own `sensitivity` D is taken
for the noise alone. Everything else is a release without noise, with the reason in a warning.
"""

from typing import Any, Literal

import numpy as np

from desim.flower.central import Central
from desim.method import Mechanism, Terms, View, plain

Price = Literal["bare", "noised", "nothing"]


class Charges:
    """Which price a reply has.

    count: everything, or models: metrics, and replies without arrays, are left out; central: the
    strategy that adds noise at the server, whose averages have rows of their own, see `central`.
    """

    def __init__(self, parts: Any, agents: int, count: str, central: Central | None = None) -> None:
        self.agents, self.count = agents, count
        self.mod = _local(parts.client)
        self.noised = self.mod is not None and count == "models"
        self.warnings: list[str] = []
        head = "flower: epsilon"
        if central is not None:
            self.warnings.append(f"{head} {central.says}")
        if self.mod is None and central is None:
            text = "infinite, as no mod that is known adds noise at the nodes"
            self.warnings.append(f"{head} is {text}; known: LocalDpMod")
        elif self.mod is not None and count == "everything":
            text = "infinite, as metrics in replies have no noise; charge: models leaves them out"
            self.warnings.append(f"{head} is {text}")
        elif self.mod is not None:
            self.warnings.append(f"{head} leaves out metrics, which replies have without noise")

    def of(self, kind: str, reply: Any) -> Price:
        """The price of a reply to a message of a kind."""
        arrays = reply.has_content() and len(reply.content.array_records) > 0
        if self.count == "models" and not arrays:
            return "nothing"
        return "noised" if self.noised and kind == "train" and arrays else "bare"

    def terms(self, price: Price) -> Terms | None:
        """The terms (agents,) of a price."""
        if price == "bare":
            return None
        if price == "nothing":
            return plain(self.agents, View.COORDINATOR, 0.0)
        mod, ones = self.mod, np.ones(self.agents)
        scale = mod.sensitivity * np.sqrt(2.0 * np.log(1.25 / mod.delta)) / mod.epsilon
        basis = "flower: LocalDpMod clips what training changed; metrics are left out"
        return Terms(
            Mechanism.CLIPPED_GAUSSIAN, View.COORDINATOR, 2.0 * mod.clipping_norm * ones,
            scale * ones, np.full(self.agents, np.nan), basis=basis,
        )  # fmt: skip


def _local(client: Any) -> Any:
    """The LocalDpMod that every train function of a ClientApp goes through, None without one."""
    whole = chains(client)
    found = [next((m for m in one if type(m).__name__ == "LocalDpMod"), None) for one in whole]
    return found[0] if found and all(one is not None for one in found) else None


def chains(client: Any) -> list[list[Any]]:
    """The mods around each function of a ClientApp that trains, the outermost first."""
    whole = [
        [*_chain(function)]
        for name, function in client._registered_funcs.items()
        if name.startswith("train.")
    ]
    if client._call is not None:
        whole = [[*_chain(client._call)]]
    return whole


def _chain(function: Any) -> Any:
    """The mods around a function, the outermost first, as Flower wraps them in closures."""
    while (code := getattr(function, "__code__", None)) is not None:
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        own = {name: cell.cell_contents for name, cell in cells}
        if "_mod" not in own or "_ffn" not in own:
            return
        yield own["_mod"]
        function = own["_ffn"]
