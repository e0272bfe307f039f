"""A data set that a user brings: rows, who they belong to, and which are for testing."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple


class Examples(NamedTuple):
    """Rows of all agents, not yet dealt.

    inputs (rows, ...) and labels (rows, ...): arrays, or anything with `shape`, `dtype`, `len` and
    rows by an array of their numbers, such as a memory map; columns (rows,) by name, which
    partitions may go by; test (rows,): True for test rows, None where the data set brings none;
    classes: how many labels 0, 1, ... there are, whatever the rows are; 0: they are counted.
    """

    inputs: Any
    labels: Any
    columns: Mapping[str, Any] = MappingProxyType({})
    test: Any = None
    classes: int = 0


class Dataset(ABC):
    """A data set of a plug-in: `problem.data: {source: plugin, name: ..., arguments: {...}}`."""

    #: what a scenario calls it, in problem.data.name
    name: ClassVar[str]
    #: one line for `desim list sources`
    summary: ClassVar[str]

    @abstractmethod
    def read(self, **arguments: Any) -> Examples:
        """The rows, a function of the arguments alone; no network."""
