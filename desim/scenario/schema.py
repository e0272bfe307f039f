"""The whole scenario: one frozen object with a section for each top-level key, in s, bit/s, 1/s."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo
from pydantic.json_schema import GenerateJsonSchema

from desim.errors import refusal
from desim.fields import File, Several, Strict, Text
from desim.fields.numbers import wholes
from desim.methods.shared.declarations import Kind
from desim.scenario.sections.algorithm import AlgorithmSection, Participation, Policy
from desim.scenario.sections.attackers import Attackers
from desim.scenario.sections.battery import MaybeBattery
from desim.scenario.sections.devices import STATELESS, Churn, Compute, MaybeChurn
from desim.scenario.sections.links import Codec
from desim.scenario.sections.network import Network
from desim.scenario.sections.observe_and_stop import ListenersSection, Observe, Stop
from desim.scenario.sections.privacy import Privacy
from desim.scenario.sections.problem import Problem

Seed = Annotated[int, *wholes(0)]
PACKAGE = Path(__file__).resolve().parents[1]
MAX_NAME_BYTES = 200  # bytes of a name: file systems allow 255


def directory_name(value: object) -> str:
    """Text that can name a directory."""
    if isinstance(value, str) and value.strip() and value not in (".", ".."):
        odd = not value.isprintable() or set(value) & set('/\\"')
        if not odd and len(value.encode(errors="replace")) <= MAX_NAME_BYTES:
            return value
    raise ValueError(refusal(value, "text that can name a directory"))


def plugin_file(value: object, info: ValidationInfo) -> object:
    """What is written, or where a plug-in is now that was at an absolute path.

    A run stores where its plug-ins were. One of desim's own is where desim is; another one that
    came along with the run lies beside its scenario.
    """
    written = Path(value) if isinstance(value, str) else Path()
    if not written.is_absolute() or written.exists():
        return value
    parts, folder = written.parts, Path((info.context or {}).get("folder", "."))
    own = [PACKAGE.joinpath(*parts[k + 1 :]) for k, part in enumerate(parts) if part == "desim"]
    places = [one for one in (*own, folder / written.name) if one.is_file()]
    return str(places[0]) if places else value


class Scenario(Strict):
    """One experiment. Two scenarios are equal if they say the same, wherever they were read.

    `folder` is where relative names count from, `source` the file, `marks` the line of each key.
    """

    examples = {
        "plugins": ["my_method.py"],
        "listeners": ["energy-meter"],
        "participation": {"bernoulli": "50 %"},
        "churn": {"up": {"exponential": "300 s"}, "down": {"exponential": "30 s"}},
        "battery": {"capacity": "10 Wh", "charger": "5 W"},
    }

    name: Annotated[Text, BeforeValidator(directory_name)]
    """name of the run; default: the file's name"""
    seed: Seed = 0
    """seed of every random draw"""
    plugins: Several[Annotated[File, BeforeValidator(plugin_file)]] = ()
    """Python files with own algorithms and losses, relative to the scenario's folder; one that is
    gone from an absolute path is looked for there"""
    problem: Problem
    """data, loss and regulariser"""
    algorithm: AlgorithmSection
    """the method: {name: ..., its parameters}"""
    participation: Participation = Participation.of("all")
    """which agents a coordinator invites"""
    policy: Policy = Policy.of("all")
    """whom a coordinator waits for; default: all, but the paper's for fedasync and fedbuff"""
    network: Network = Network()
    """graph and links; or the name of a file in networks/, or {include: name, ...}"""
    codec: Codec = Codec.of("none")
    """how messages are coded before they are sent: fewer bits for what receivers can do without"""
    compute: Compute = Compute()
    """how fast agents compute"""
    churn: MaybeChurn = None
    """agents that leave and come back: none, {up: .., down: ..}, {trace: file} or {daily: ..}"""
    battery: MaybeBattery = None
    """what agents run on, and are down without: {capacity: 10 Wh, charge: 80 %, charger: 5 W}"""
    attackers: Attackers | None = None
    """agents that do harm: {share: 20 %, attack: sign-flip}"""
    privacy: Privacy | None = None
    """noise, and the terms in which privacy is stated; default: no noise"""
    listeners: ListenersSection = ()
    """what hangs on the run while it plays: listeners of plug-ins, by name or {name: ..., its
    parameters}"""
    observe: Observe = Observe()
    """what is measured"""
    log: Literal["all", "messages", "rounds"] = "all"
    """events that are kept: all; messages: not activate, compute, release; rounds: only aggregate,
    deadline, retire. Counts are exact whatever is kept. rounds keeps every release with noise, and
    of an agent's releases without noise the first that arrives: epsilon is infinite from then on"""
    stop: Stop
    """when the run ends: at least one of rounds, time, metric"""
    engine: Literal["auto", "compiled", "cohort", "agents"] = "auto"
    """agents (runs everything), cohort, compiled (the fastest), or auto: the fastest that can"""
    folder: Path = Field(default=Path("."), alias="(folder)", exclude=True, repr=False)
    source: str = Field(default="scenario", alias="(source)", exclude=True, repr=False)
    marks: dict[str, str] = Field(default={}, alias="(marks)", exclude=True, repr=False)

    @property
    def kind(self) -> Kind:
        """What the method is on this topology: with a coordinator, on a graph, or of one agent."""
        return self.algorithm.method.kind_on(self.network.topology.kind)

    @property
    def agent_rounds(self) -> int | None:
        """In how many rounds agents are called until stop.rounds, those of edges counted."""
        rounds = self.stop.rounds
        return None if rounds is None else rounds * self.network.edge_rounds

    @property
    def hears_later(self) -> bool:
        """Whether agents of a graph hear messages of later rounds than their own."""
        waits = self.policy.kind == "each" or (
            self.algorithm.method.hears_later and self.policy.kind != "all"
        )
        return self.kind == "graph" and waits

    @property
    def leaving(self) -> Churn | None:
        """How agents leave, by churn, or by their batteries alone; None where they stay."""
        return STATELESS if self.churn is None and self.battery is not None else self.churn

    @property
    def late(self) -> Literal["discard", "carry"]:
        """What becomes of late replies where the policy does not say: carry on a graph."""
        return "carry" if self.kind == "graph" else "discard"

    def written(self) -> dict[str, Any]:
        """The scenario as a file writes it, every default explicit."""
        section = super().written()
        if self.policy.kind not in Policy.words:
            section["policy"].setdefault("late", self.late)
        section.setdefault("churn", "none")
        if not self.listeners:
            section.pop("listeners", None)
        return {key: section[key] for key in SECTIONS if key in section}

    def __repr__(self) -> str:
        facts = ", ".join(text for _, text in self.facts())
        return f"<Scenario {self.name}: {facts}>"

    __str__ = __repr__

    def facts(self) -> list[tuple[str, str]]:
        """What it is about, as pairs of a name and a few words."""
        problem, agents, limits = self.problem, self.problem.agents, self.stop.limits()
        facts = [("algorithm", self.algorithm.name)]
        facts += [("agents", f"{agents} agents")] if agents is not None else []
        data = getattr(problem.data, "name", "") or f"{getattr(problem.data, 'source', '')} data"
        facts += [("problem", f"{problem.loss.kind} loss on {data}")]
        facts += [("network", f"{self.network.topology.kind} topology")]
        facts += [("waiting", f"policy {self.policy.kind}")] if self.policy.kind != "all" else []
        facts += [("privacy", "private" if self.privacy else "no noise")]
        return [*facts, ("end", f"until {limits}"), ("seed", f"seed {self.seed}")]

    def _repr_html_(self) -> str:
        from desim.scenario.tree import dumped
        from desim.tabulated import card, folded

        more = [folded("the whole scenario, every default explicit", dumped(self.written()))]
        return card(f"scenario {self.name}", self.facts(), more=more)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scenario) and self.written() == other.written()

    def __hash__(self) -> int:
        return hash(repr(self.written()))


SECTIONS: tuple[str, ...] = Scenario.keys()


def json_schema() -> dict[str, Any]:
    """JSON Schema of a scenario file, for editors: descriptions, units, defaults, algorithms."""
    from desim.scenario.definitions import once

    schema = Scenario.model_json_schema(by_alias=False, schema_generator=GenerateJsonSchema)
    properties = schema["properties"]
    for hidden in ("folder", "source", "marks"):
        properties.pop(hidden)
    schema["required"].remove("name")
    file = {"type": "string", "description": "a file in networks/: lan, wifi, 4g, satellite, ..."}
    section = schema["$defs"]["Network"]  # which may include a file, or be the name of one
    section["properties"] = {"include": file, **section["properties"]}
    about = properties["network"].get("description", "")
    network = {"anyOf": [file, {"$ref": "#/$defs/Network"}], "description": about}
    properties["network"] = network
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "desim scenario",
        **once(without_null(schema)),
    }


def without_null(schema: Any) -> Any:
    """`schema` without the null that stands for a key that is left out: a file may not write it."""
    if isinstance(schema, list):
        return [without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    clean = {key: without_null(item) for key, item in schema.items()}
    if "default" in clean and clean["default"] is None:
        del clean["default"]
    options = [option for option in clean.get("anyOf", []) if option != {"type": "null"}]
    if "anyOf" in clean and len(options) == 1:
        del clean["anyOf"]
        return {**options[0], **clean}
    return {**clean, "anyOf": options} if "anyOf" in clean else clean
