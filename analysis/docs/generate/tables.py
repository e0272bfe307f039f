"""The tables of runs and studies, column by column, from what desim itself says of them."""

from analysis.docs.generate.markdown import code, escaped, paragraphs, table
from desim.log.column_meanings import COLUMNS, KINDS, METRICS, ROWS
from desim.log.schemas import FIELDS, TYPES

FILES = {"events": "events.parquet", "metrics": "metrics.parquet", "releases": "releases.parquet"}
CALLS = {
    "curve": "`run.curve(metric)`",
    "delivered": "what arrived, for the axis in bytes",
    "epsilon": "`run.epsilon(delta, view)`",
    "critical_path": "`run.critical_path()`",
    "waits": "`run.waits()`",
    "utilisation": "`run.utilisation()`",
    "energy": "`run.energy()`",
    "clients": "`run.clients()`",
    "fairness": "`run.fairness()`",
    "links": "`run.links()`",
    "staleness": "`run.staleness()`",
    "participation": "`run.participation()`",
    "runs": "`study.runs`",
    "summary": "`study.summary`",
    "comparisons": "`study.comparisons`",
    "ert": "`study.ert(spent)`",
    "ecdf": "`study.ecdf(spent)`",
    "profile": "`study.profile(spent)`",
}


def stored() -> str:
    """The tables of a run directory."""
    return paragraphs(*(_stored(name, file) for name, file in FILES.items()))


def computed() -> str:
    """The tables that are computed from them."""
    return paragraphs(*(_computed(name) for name in COLUMNS if name not in FILES))


def kinds() -> str:
    """Kinds of events."""
    rows = ((code(k), *(escaped(text) for text in told)) for k, told in KINDS.items())
    return table(("kind", "what happens", "seconds", "value"), rows)


def metrics() -> str:
    """Metrics."""
    return table(("metric", "what it is"), ((code(k), escaped(t)) for k, t in METRICS.items()))


def _stored(name: str, file: str) -> str:
    rows = (
        (f"**{code(column)}**", _type(FIELDS[name][column]), escaped(unit), escaped(means))
        for column, (unit, means) in COLUMNS[name].items()
    )
    head = ("column", "type", "unit", "what it is")
    return paragraphs(
        f"## {file}", f"`run.{name}`; a row is {escaped(ROWS[name])}.", table(head, rows)
    )


def _computed(name: str) -> str:
    rows = (
        (f"**{code(column)}**", escaped(unit), escaped(means))
        for column, (unit, means) in COLUMNS[name].items()
    )
    where = CALLS.get(name, code(name))
    title = where if where.startswith("`") else name
    return paragraphs(
        f"### {title}",
        f"A row is {escaped(ROWS[name])}.",
        table(("column", "unit", "what it is"), rows),
    )


def _type(kind: str) -> str:
    return "word" if kind == "word" else str(TYPES[kind])
