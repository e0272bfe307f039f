"""A run as it is seen by the rooms that its class calls, which cannot import the class."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pandas as pd

    from desim.privacy.accounting.accountants import Account
    from desim.runs.store import Store
    from desim.scenario.schema import Scenario


class Played(Protocol):
    """What is read of a run: `desim.runs.run.Run` is one, and says what each part means."""

    manifest: dict[str, Any]
    directory: Path | None
    store: "Store"

    @property
    def name(self) -> str:
        """Of the scenario."""

    @property
    def status(self) -> str:
        """How it ended."""

    @property
    def scenario(self) -> "Scenario":
        """What was played."""

    @property
    def known(self) -> "Scenario | None":
        """The same, if the run knows it."""

    @property
    def written(self) -> dict[str, Any]:
        """The same as plain data, if the run has it."""

    @property
    def alike(self) -> str | None:
        """What runs that differ in their seeds only have in common, if the run knows it."""

    @property
    def algorithm(self) -> str:
        """Its name."""

    @property
    def level(self) -> str:
        """Of the log."""

    @property
    def budget(self) -> float | None:
        """Epsilon that no agent exceeds."""

    @property
    def metrics(self) -> "pd.DataFrame":
        """Rows time, round, metric, agent, value."""

    def require(self, what: str, *kinds: str) -> None:
        """Refuse where the log leaves out events of these kinds."""

    def curve(self, metric: str) -> "pd.DataFrame":
        """Rows time, round, value of the network."""

    def delivered(self) -> "pd.DataFrame":
        """Rows time, bytes of every message that arrived."""

    def account(self) -> "Account":
        """What the releases cost."""

    def epsilon(self) -> "pd.DataFrame":
        """Rows time, agent, epsilon."""

    def utilisation(self) -> "pd.DataFrame":
        """A row for each agent."""

    def links(self) -> "pd.DataFrame":
        """A row for each link."""

    def staleness(self) -> "pd.DataFrame":
        """A row for each use of what was heard."""


One = Played | str | Path
Given = One | Sequence[One] | Mapping[str, Sequence[One]]  # directories stand for what is in them
