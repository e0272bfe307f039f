"""The page of a report, a template that escapes everything and loads nothing, and its figures."""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from json import dumps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from desim.arrays import Array
from desim.interface.plots.style import LOGARITHMIC, WORDS, is_share, ranked
from desim.interface.reports.readable import Reading
from desim.problem.fairness import RISING
from desim.runs.directory import output

# The data of the charts: every curve with its four abscissae, thinned by a stated rule.


POINTS = 40_000  # in all curves of a report together: some 2 MB
MIN_POINTS, MAX_POINTS = 40, 2000  # of one curve
UNSEEN = {"time": [0], "round": [0], "bytes": [0], "epsilon": [0], "value": [None]}
LABELS = {
    **WORDS,
    "error": "error: sum over agents of ‖xᵢ - x*‖² / ‖x*‖²",
    "loss": "loss: the objective at the average model",
    "consensus": "consensus: mean over agents of ‖xᵢ - x̄‖²",
    "gradient": "gradient norm ‖∇F‖",
}
RULE = (
    "A curve of more than {most} rows is cut into {bins} pieces of equal length, and of each the "
    "first, last, lowest and highest row are drawn. Tables are made of all rows."
)


def thinned(value: Array, most: int) -> NDArray[np.int64]:
    """Indices of at most `most` of the rows (n,): first, last, lowest, highest of equal pieces."""
    n = len(value)
    if n <= most:
        return np.arange(n)
    rows = [0, n - 1]
    for piece in np.array_split(np.arange(n), max(1, most // 4)):
        part = value[piece]
        rows += [piece[0], piece[-1]]
        if np.isfinite(part).any():
            rows += [piece[np.nanargmin(part)], piece[np.nanargmax(part)]]
    return np.unique(np.array(rows, np.int64))


def points_each(curves: int) -> int:
    """How many points a curve may have where there are so many."""
    return int(np.clip(POINTS // max(1, curves), MIN_POINTS, MAX_POINTS))


def metrics(found: Sequence[Reading]) -> list[str]:
    """Names of all metrics, the one that figures show if none is named first."""
    return ranked([one.curves.keys() for one in found])


def chart_data(found: Sequence[Reading]) -> dict[str, Any]:
    """What the page's script draws: runs with their curves, and how each metric is shown."""
    names = metrics(found)
    most = points_each(sum(len(one.curves) + 1 for one in found))
    series = list(dict.fromkeys(one.series for one in found))
    rising = sorted(RISING.intersection(names))
    runs = []
    for one in found:
        curves: dict[str, Any] = dict.fromkeys(names, UNSEEN) if one.lost else {}
        for name, curve in one.curves.items():
            rows = thinned(curve.value, most)
            arrays = {column: getattr(curve, column) for column in UNSEEN}
            curves[name] = {
                column: None if a is None else rounded(a[rows]) for column, a in arrays.items()
            }
        runs.append({
            "label": one.label, "group": series.index(one.series), "failed": one.lost,
            "curves": curves, "epsilon": _spent(one, most),
        })  # fmt: skip
    shown = [
        {"name": name, "label": LABELS.get(name, name), "percent": is_share(name),
         "log": name in LOGARITHMIC}
        for name in names
    ]  # fmt: skip
    return {
        "runs": runs, "metrics": shown, "comparable": not terms_differ(found), "groups": series,
        "rising": rising,
    }  # fmt: skip


def thinning(found: Sequence[Reading]) -> str:
    """The rule by which curves are thinned, "" where none is."""
    most = points_each(sum(len(one.curves) + 1 for one in found))
    long = any(len(curve.time) > most for one in found for curve in one.curves.values())
    return RULE.format(most=most, bins=most // 4) if long else ""


def terms(one: Reading) -> str:
    """What a run's epsilon is about, "" where it has none."""
    return "" if one.account is None else one.account.terms


def terms_differ(found: Sequence[Reading]) -> bool:
    """Whether the runs with a finite epsilon state it about different things."""
    accounts = [one.account for one in found if one.account is not None and one.spent is not None]
    return len({(one.view, one.relation, one.delta) for one in accounts}) > 1


def embedded(data: Any) -> str:
    """JSON that may stand in a script element: nothing in it can end that element."""
    text = dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _spent(one: Reading, most: int) -> dict[str, Any] | None:
    """Epsilon over time, from 0 at the start and held until the end."""
    if one.spent is None:
        return None
    time = np.concatenate([[0.0], one.spent.times, [max(one.ended, *one.spent.times[-1:])]])
    total = np.concatenate([[0.0], one.spent.totals, one.spent.totals[-1:]])
    rows = thinned(total, most)
    return {"time": rounded(time[rows]), "value": rounded(total[rows])}


def rounded(values: Array) -> list[float | int | None]:
    """Six digits of each value, whole numbers without a point, null for what is not finite."""
    six = [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist()]
    return [
        int(one) if one is not None and one.is_integer() and abs(one) < 1e15 else one for one in six
    ]


ASSETS = files("desim.interface.reports") / "assets"
SCRIPTS = ("uplot.min.js", "chart.js", "page.js")
STYLES = ("uplot.min.css", "page.css")
UPLOT = "1.6.32"


def write(path: Path, parts: Mapping[str, Any]) -> Path:
    """Write the page to `path` in one step; InputError where that is impossible."""
    text = rendered(parts)
    with output(path, [".html", ".htm"]) as partial:
        partial.write_text(text, "utf-8", newline="\n")
    return path


def rendered(parts: Mapping[str, Any]) -> str:
    """The page as text. Its policy allows its own scripts and styles by their hashes, no others."""
    figures = parts["clock"] is not None or any(drawings for _, drawings in parts["studies"])
    figures = figures or parts["clients"] is not None
    scripts, styles = [asset(name) for name in SCRIPTS], ["\n".join(map(asset, STYLES))]
    allowed = policy(scripts, styles, figures)
    more = {"data": Markup(embedded(parts["charts"])), "uplot": UPLOT}
    return filled(asset("page.html.jinja"), {**parts, **more}, scripts, styles, allowed)


def filled(
    template: str, parts: Mapping[str, Any], scripts: list[str], styles: list[str], policy: str
) -> str:
    """A template with its parts, all of them escaped but what is Markup, scripts and styles."""
    surroundings = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return surroundings.from_string(template).render(
        **parts,
        policy=policy,
        scripts=[Markup(text) for text in scripts],
        styles=[Markup(text) for text in styles],
        version=version("desim"),
    )


def policy(scripts: list[str], styles: list[str], figures: bool) -> str:
    """The Content-Security-Policy of a page with these scripts and styles and nothing else.

    figures: whether there are pictures, which are in the page, too.
    """
    allowed = {"script-src": scripts, "style-src": styles}
    hashed = [
        " ".join([kind, *(f"'sha256-{_base64(sha256(one.encode()).digest())}'" for one in texts)])
        for kind, texts in allowed.items()
    ]
    pictures = ["img-src data:"] if figures else []
    return "; ".join(
        ["default-src 'none'", *hashed, *pictures, "base-uri 'none'", "form-action 'none'"]
    )


def _base64(some: bytes) -> str:
    return b64encode(some).decode()


def asset(name: str, folder: Traversable = ASSETS) -> str:
    """The text of a file that comes with pages."""
    return (folder / name).read_text("utf-8").replace("\r\n", "\n")


# Figures as data URLs, so that nothing is fetched from anywhere.
KIND = "data:image/svg+xml;base64,"


def drawn(draw: Callable[[Path], object]) -> str:
    """What `draw` writes to a file, as a data URL."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "figure.svg"
        draw(path)
        return KIND + _base64(path.read_bytes())
