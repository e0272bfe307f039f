"""The reference of scenarios: every section with its keys, in the order of a file."""

import re
from functools import cache

from analysis.docs.generate.keys import key_table
from analysis.docs.generate.markdown import code, escaped, flowing, paragraphs
from analysis.docs.generate.types import sections_in
from desim.fields import Form, Init, Local, Step, Strict
from desim.fields.strict import Decay
from desim.scenario.schema import Scenario
from desim.scenario.sections.algorithm import Algorithm
from desim.scenario.sections.attackers import Aggregate
from desim.scenario.sections.data import SOURCES
from desim.scenario.sections.tabular import MarkedRows, SomeRows
from desim.scenario.study_file import StudyFile

Places = dict[type[Strict], str]
SHARED: Places = {
    Local: "algorithm.local",
    Init: "algorithm.init",
    Step: "a step that varies",
    Decay: "decay",
}


@cache
def places() -> Places:
    """Every section and where a file has it first."""
    found: Places = {}
    for key in Scenario.keys():
        for section in sections_in(Scenario.model_fields[key].annotation):
            if section not in (Strict, Algorithm):
                _descend(key, section, found)
        if key == "problem":
            for name, section in SOURCES.items():
                _descend(f"problem.data, source: {name}", section, found)
            found |= {SomeRows: "test, some rows", MarkedRows: "test, marked rows"}
        if key == "algorithm":
            found |= SHARED
            _descend("algorithm.aggregate", Aggregate, found)
    return found


def _descend(path: str, section: type[Strict], found: Places) -> None:
    if section in found or section is Strict:
        return
    if path in found.values():
        path = f"{path}: {section.__name__.lower()}"
    found[section] = path
    for key in section.keys():
        for inner in sections_in(section.model_fields[section.attribute(key)].annotation):
            _descend(f"{path}.{key}", inner, found)


def target(path: str) -> str:
    """The anchor of the heading of a section: its words in small letters, joined by hyphens."""
    return re.sub(r"[^\w\- ]", "", path.lower()).replace(" ", "-")


def link(section: type[Strict], page: str = "") -> str:
    """A link to a section from the page of scenarios, or by its path; "" where there is none."""
    where = places()
    known = next((where[one] for one in section.__mro__ if one in where), "")
    return f"[{known}]({page}#{target(known)})" if known else ""


def scenario() -> str:
    """The whole reference."""
    top = paragraphs(
        "## The whole file",
        escaped("A mapping with these keys; algorithm, problem and stop are required."),
        key_table(Scenario, link),
    )
    return paragraphs(top, *(_section(path, one) for one, path in places().items()))


def study() -> str:
    """The keys of a study file."""
    found: Places = {}
    _descend("study", StudyFile, found)
    names = {one: path.removeprefix("study.") for one, path in found.items()}

    def title(section: type[Strict]) -> str:
        return "The whole file" if section is StudyFile else names[section]

    def link(section: type[Strict]) -> str:
        return f"[{names[section]}](#{target(title(section))})" if section in names else ""

    return paragraphs(
        *(
            paragraphs(
                f"## {title(one)}",
                escaped(flowing(one.__doc__ or "")),
                key_table(one, link),
            )
            for one in found
        )
    )


def _section(path: str, section: type[Strict]) -> str:
    depth = "##" if "." not in path and "," not in path and section not in SHARED else "###"
    about = escaped(flowing(section.__doc__ or ""))
    return paragraphs(f"{depth} {path}", about, _forms(section), key_table(section, link))


def _forms(section: type[Strict]) -> str:
    """How a section may be written, where that is more than a mapping."""
    if not issubclass(section, Form):
        return ""
    words = [code(word) for word in section.words]
    keys = [code(f"{{{key}: ...}}") for key in section.alternatives()]
    extra = ", ".join(code(key) for key in section.modifiers)
    more = f"; with a mapping also {extra}" if extra else ""
    return f"One of {', '.join([*words, *keys])}{more}."
