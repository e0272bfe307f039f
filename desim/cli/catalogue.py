"""What `desim list` knows: everything that a scenario can name, described where it is defined."""

import re
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from desim.fields import Form

Entries = list[tuple[str, str]]
SENTENCE = re.compile(r"(?<=[.?]) +(?=[A-Z])")  # between sentences

WORDS = {
    "star": "every agent talks to the coordinator only",
    "ring": "agent i talks to i - 1 and i + 1",
    "complete": "everybody talks to everybody",
    "path": "a ring without the edge that closes it",
    "all": "wait for every reply",
    "each": "go on at every reply: fully asynchronous",
    "logistic": "log(1 + exp(-b a.x)), labels b in {-1, 1}",
    "squared": "(a.x - b)^2",
    "absolute": "|a.x - b|",
    "huber": "(a.x - b)^2 up to a knee, then linear",
    "hinge": "max(0, 1 - b a.x), labels b in {-1, 1}",
    "softmax": "cross-entropy of scores w_c.a, labels b are class numbers",
    "none": "no regulariser",
}


def algorithms() -> Entries:
    """Methods, with the paper of each and what it needs."""
    from desim.scenario import registry

    methods = {name: registry.get(name) for name in registry.names()}
    return [
        (name, f"{m.summary}\n{m.paper}; needs {', '.join(m.needs())}")
        for name, m in methods.items()
    ]


def losses() -> Entries:
    """Losses of one row a with label b."""
    from desim.scenario import registry
    from desim.scenario.problem_section import Loss

    own = registry.plugged().losses
    return [*_alternatives(Loss), *((name, own[name].summary) for name in own)]


def regularizers() -> Entries:
    """Regularisers, added once to the sum over agents."""
    from desim.scenario.regularizer_section import Penalty

    return [("none", WORDS["none"]), *_alternatives(Penalty)]


def topologies() -> Entries:
    """Graphs."""
    from desim.scenario.topology_section import Topology

    return _alternatives(Topology)


def policies() -> Entries:
    """Whom a coordinator waits for."""
    from desim.scenario.method_section import Policy

    return _alternatives(Policy)


def sources() -> Entries:
    """Where data come from."""
    from desim.scenario.data_section import SOURCES

    return [(name, _sentence(section.__doc__ or "")) for name, section in SOURCES.items()]


def networks() -> Entries:
    """Network conditions that any scenario can include by name."""
    from desim.scenario import shipped

    return [(name, _heading(path)) for name, path in shipped.networks().items()]


def scenarios() -> Entries:
    """Scenarios that come with desim, by the name that `desim run` takes."""
    from desim.scenario import shipped

    return [(name, _heading(path)) for name, path in shipped.scenarios().items()]


def studies() -> Entries:
    """Studies that come with desim, by the name that `desim study` takes."""
    from desim.scenario import shipped

    return [(name, _heading(path)) for name, path in shipped.studies().items()]


SECTIONS: dict[str, Callable[[], Entries]] = {
    "algorithms": algorithms,
    "losses": losses,
    "regularizers": regularizers,
    "topologies": topologies,
    "policies": policies,
    "sources": sources,
    "networks": networks,
    "scenarios": scenarios,
    "studies": studies,
}


START = ("quickstart", "asynchronous", "networked-admm", "deadline-sgd")
WIDTH = 100  # characters of a line of the overview


def overview() -> list[str]:
    """Lines of text: five things to start with, and one line for each section."""
    known = dict(scenarios())
    about = {f"desim run {name}": known[name] for name in START}
    about["desim study waiting"] = dict(studies())["waiting"]
    told = ["to start with"]
    told += [f"  {command:26}{_cut(text, WIDTH - 28, ' ')}" for command, text in about.items()]
    told += ["", "what else there is, all of it by `desim list WHAT`"]
    for name, entries in SECTIONS.items():
        names = dict.fromkeys(entry.partition(":")[0].strip("{") for entry, _ in entries())
        told.append(f"  {name:14}{len(names):3}  {_cut(', '.join(names), WIDTH - 21, ', ')}")
    return told


def _cut(text: str, width: int, between: str) -> str:
    """What of `text` fits, up to the last `between`, and whether there is more."""
    if len(text) <= width:
        return text
    return text[: width - 4].rpartition(between)[0] + between + "..."


def _alternatives(form: "type[Form]") -> Entries:
    words = [(word, WORDS[word]) for word in form.words]
    keys = [(f"{{{key}: ...}}", _about(form, key)) for key in form.alternatives()]
    return [*words, *keys]


def _about(form: "type[Form]", key: str) -> str:
    return _sentence(form.about(key))


def _sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).removesuffix(".")


def _heading(path: Path) -> str:
    """The first sentence of a shipped file's comment, less the editor's schema line."""
    lines = path.read_text("utf-8").splitlines()
    comments = takewhile(lambda line: line.startswith("#"), lines)
    text = " ".join(one[1:].strip() for one in comments if "yaml-language-server" not in one)
    return _sentence(SENTENCE.split(text)[0])
