"""What `desim list` knows: everything that a scenario can name, described where it is defined."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from desim.errors import chosen
from desim.fields import Form
from desim.log.column_meanings import METRICS
from desim.network.conditions.choosing import CHOOSERS
from desim.scenario import measurements, registry, tree
from desim.scenario.sections.algorithm import Policy
from desim.scenario.sections.attackers import Aggregate, Attack
from desim.scenario.sections.data import SOURCES
from desim.scenario.sections.links import OneWay
from desim.scenario.sections.network import Topology
from desim.scenario.sections.problem import Loss, Penalty

Entries = list[tuple[str, str]]
SENTENCE = re.compile(r"(?<=[.?]) +(?=[A-Z])")  # between sentences

CODES = {
    "none": "every number as it is, 64 bits",
    "float32": "every number rounded to 32 bits",
    "float16": "every number rounded to 16 bits",
}
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
    "label-flip": "labels of their rows are turned round: -b, or C - 1 - b of C classes",
    "mimic": "all send what the first honest agent sends (Karimireddy et al. 2022)",
    "silence": "what they send never arrives",
}


def _summaries(plugged: Mapping[str, Any]) -> Entries:
    return [(name, one.summary) for name, one in plugged.items()]


def algorithms() -> Entries:
    """Methods, with the paper of each and what it needs."""
    methods = {name: registry.get(name) for name in registry.names()}
    return [
        (name, f"{m.summary}\n{m.paper}; needs {', '.join(m.needs())}")
        for name, m in methods.items()
    ]


def losses() -> Entries:
    """Losses of one row a with label b."""
    return [*_alternatives(Loss), *_summaries(registry.plugged().losses)]


def models() -> Entries:
    """Models of plug-ins: losses of rows of any shape."""
    return _summaries(registry.plugged().models)


def listeners() -> Entries:
    """Listeners of plug-ins: what hangs on a run while it plays."""
    return _summaries(registry.plugged().listeners)


def sources() -> Entries:
    """Where data come from."""
    plugged = _summaries(registry.plugged().datasets)
    return [*_documented(SOURCES), *((f"plugin {name}", text) for name, text in plugged)]


def choices() -> Entries:
    """Whom a coordinator invites that remembers: participation: {choose: NAME, invite: n}."""
    return _documented(CHOOSERS)


def _documented(known: Mapping[str, Any]) -> Entries:
    return [(name, _sentence(one.__doc__ or "")) for name, one in known.items()]


def codecs() -> Entries:
    """How messages are coded: codec: NAME, or {NAME: ...}."""
    keys = [(key, OneWay.about(key)) for key in OneWay.alternatives()]
    return [
        *((word, CODES[word]) for word in OneWay.words),
        *((f"{{{key}: ...}}", _sentence(about)) for key, about in keys),
    ]


def _written(form: type[Form]) -> Entries:
    """Words and keys of a form, some of which are both."""
    keys = [*form.alternatives(), *form.modifiers]
    words = [(word, WORDS[word]) for word in form.words if word not in keys]
    named = ((key if key in form.words else f"{{{key}: ...}}", form.about(key)) for key in keys)
    return [*words, *((name, _sentence(about)) for name, about in named)]


def rules() -> Entries:
    """What stands for the mean of replies: algorithm.aggregate: NAME, or {NAME: ...}."""
    return _written(Aggregate)


def attacks() -> Entries:
    """What attackers do: attackers: {share: 20 %, attack: NAME}."""
    return _written(Attack)


def _brought(files: Callable[[], dict[str, Path]]) -> Callable[[], Entries]:
    """What comes with desim, by name, with the first sentence of each file."""

    def headings() -> Iterator[tuple[str, str]]:
        for name, path in files().items():
            lines = path.read_text("utf-8").splitlines()
            comments = takewhile(lambda line: line.startswith("#"), lines)
            text = " ".join(one[1:].strip() for one in comments if "yaml-language" not in one)
            yield name, _sentence(SENTENCE.split(text)[0])

    return lambda: [*headings()]


scenarios, studies = _brought(tree.scenarios), _brought(tree.studies)
SECTIONS: dict[str, Callable[[], Entries]] = {
    "algorithms": algorithms,
    "losses": losses,
    "models": models,
    "listeners": listeners,
    "regularizers": lambda: [("none", WORDS["none"]), *_alternatives(Penalty)],
    "topologies": lambda: _alternatives(Topology),
    "policies": lambda: _alternatives(Policy),
    "choices": choices,
    "codecs": codecs,
    "rules": rules,
    "attacks": attacks,
    "sources": sources,
    "metrics": lambda: list(METRICS.items()),
    "networks": _brought(tree.networks),
    "traces": measurements.traces,
    "scenarios": scenarios,
    "studies": studies,
}


NONE = {  # what there is to do where a section is empty
    kind: "none is known here: a package brings some, or plugins: [FILE.py] in a scenario"
    for kind in ("models", "listeners")
}
START = ("quickstart", "asynchronous", "networked-admm", "deadline-sgd")
WIDTH = 100  # characters of a line of the overview


def overview() -> list[str]:
    """Lines of text: five things to start with, and one line for each section with entries."""
    known = dict(scenarios())
    about = {f"desim run {name}": known[name] for name in START}
    about["desim study waiting"] = dict(studies())["waiting"]
    lines = ["to start with"]
    lines += [f"  {command:26}{_cut(text, WIDTH - 28, ' ')}" for command, text in about.items()]
    lines += ["", "what else there is, all of it by `desim list WHAT`"]
    for name, entries in SECTIONS.items():
        names = dict.fromkeys(entry.partition(":")[0].strip("{") for entry, _ in entries())
        if names:
            text = _cut(", ".join(names), WIDTH - 21, ", ")
            lines.append(f"  {name:14}{len(names):3}  {text}")
    return lines


def listed(what: str) -> list[str]:
    """Lines of text: what there is of a section, each name with what it stands for."""
    entries = SECTIONS[chosen("list", what, SECTIONS)]()
    if not entries:
        return [NONE[what]]
    width = max(len(entry) for entry, _ in entries)
    lines = []
    for entry, about in entries:
        first, *rest = about.split("\n")
        lines += [f"  {entry:{width}}  {first}".rstrip(), *(f"  {'':{width}}  {x}" for x in rest)]
    return lines


def _cut(text: str, width: int, between: str) -> str:
    """What of `text` fits, up to the last `between`, and whether there is more."""
    if len(text) <= width:
        return text
    return text[: width - 4].rpartition(between)[0] + between + "..."


def _alternatives(form: type[Form]) -> Entries:
    words = [(word, WORDS[word]) for word in form.words]
    keys = [(f"{{{key}: ...}}", _sentence(form.about(key))) for key in form.alternatives()]
    return [*words, *keys]


def _sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).removesuffix(".")
