"""The page of each algorithm: its equations are written there, all else is read from the code."""

import importlib
import inspect
from functools import cache, partial
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from analysis.docs.generate import accounting
from analysis.docs.generate.keys import key_table
from analysis.docs.generate.markdown import code, escaped, flowing, paragraphs, table
from analysis.docs.generate.methods import needs, promises
from analysis.docs.generate.scenario import link
from analysis.docs.generate.worked import scenario_text
from desim.methods.shared.declarations import Method
from desim.scenario import registry

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "analysis" / "docs" / "reference" / "algorithms"
REPOSITORY = "../../../.."
PROGRAMS = (
    "coordinator",
    "train",
    "differentiate",
    "noisy",
    "agents",
    "minimise",
    "step",
    "estimate",
)


@cache
def front() -> dict[str, dict[str, Any]]:
    """Of each method its twin, tests, reproductions, and what its scenario has of its own."""
    return dict(YAML(typ="safe").load((FOLDER / "methods.yaml").read_text("utf-8")))


def summary(name: str) -> str:
    """What stands above the equations."""
    method = registry.get(name)
    return paragraphs(
        f"{escaped(_sentence(method.summary))} *{escaped(method.paper)}*.", _source(method)
    )


def details(name: str) -> str:
    """What stands below what is released."""
    method = registry.get(name)
    return paragraphs(
        _theorems(name),
        f"## Parameters\n\n{_beside(method)}",
        key_table(method.Parameters, partial(link, page="../scenario.md")),
        "## What it needs and admits",
        table(("", ""), needs(method)),
        "## A scenario\n\nEvery key that is left out has a "
        "[default](../scenario.md). A test plays it.",
        f"```yaml\n{scenario_text(name, front()[name]['scenario'])}```",
        "## Checked by",
        _checks(name),
        "## The code",
        _program(method),
    )


def _beside(method: type[Method]) -> str:
    """Where the parameters are written, and what else may be there."""
    rule = "[`aggregate`](../scenario.md#algorithmaggregate)"
    takes = method.totals() or vars(method).get("mixes")
    return f"Beside `name`{f' and {rule}' * bool(takes)}, under `algorithm`:"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _source(method: type[Method]) -> str:
    """What cites the paper and says what was corrected: of the class, else of its file."""
    module = importlib.import_module(method.__module__)
    file = Path(inspect.getfile(method)).relative_to(ROOT)
    about = inspect.cleandoc(method.__doc__ or "")
    about = about if "\n\n" in about else inspect.getdoc(module) or ""
    cited = "\n\n".join(escaped(flowing(part)) for part in about.split("\n\n")[1:])
    return paragraphs(cited, f"The code: [{code(file)}]({REPOSITORY}/{file}).")


def _theorems(name: str) -> str:
    found = accounting.about(name)
    head = "### What the paper claims\n\nBeside the epsilon that holds, `desim privacy` prints"
    return f"{head} these, with their verdicts:\n\n{found}" if found else ""


def _checks(name: str) -> str:
    """Twins, tests and reproductions."""
    said = front()[name]
    twin = f"the plain NumPy loop {code('tests/naive/' + said['twin'] + '.py')}"
    tests = ", ".join(code(f"tests/{one}.py") for one in said["tests"])
    lines = [f"- {twin}, held equal in {tests}", f"- {promises(registry.get(name))}"]
    again = said.get("reproductions", ())
    if again:
        scripts = ", ".join(code(f"python -m analysis.reproductions {one}") for one in again)
        lines.append(
            f"- the papers' tables and figures, computed again: {scripts} "
            "([errata](../../errata.md))"
        )
    return "\n".join(lines)


def _program(method: type[Method]) -> str:
    """The equations as they run."""
    formulas = getattr(inspect.getmodule(method), "Formulas", None)
    own = [formulas] if formulas else []
    own += [getattr(method, one) for one in PROGRAMS if callable(getattr(method, one, None))]
    blocks = []
    for one in own:
        source = inspect.cleandoc("\n" + inspect.getsource(one))
        blocks.append(f"```python\n{source}\n```")
    return paragraphs(*blocks)


def index() -> str:
    """All algorithms in a table."""
    rows = []
    for name in registry.names():
        method = registry.get(name)
        kind = "coordinator or graph" if method.peers else method.kind
        noise = "yes" if method.noises else "no"
        rows.append(
            (
                f"[{name}]({name}.md)",
                escaped(method.summary),
                kind,
                noise,
                escaped(method.paper),
            )
        )
    return table(("name", "what it does", "kind", "noise", "paper"), rows)
