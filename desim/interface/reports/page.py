"""The page of a report, a template that escapes everything and loads nothing, and its figures."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from desim.interface.reports.charts import embedded
from desim.runs.directory import output

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
    figures = parts["clock"] is not None or any(one.first for one in parts["studies"])
    scripts, styles = [_asset(name) for name in SCRIPTS], ["\n".join(map(_asset, STYLES))]
    surroundings = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = surroundings.from_string(_asset("page.html.jinja"))
    return template.render(
        **parts,
        policy=policy(scripts, styles, figures),
        scripts=[Markup(text) for text in scripts],
        styles=[Markup(text) for text in styles],
        data=Markup(embedded(parts["charts"])),
        version=version("desim"),
        uplot=UPLOT,
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


def _asset(name: str) -> str:
    return (ASSETS / name).read_text("utf-8").replace("\r\n", "\n")


# Figures as data URLs, so that nothing is fetched from anywhere.
KIND = "data:image/svg+xml;base64,"


def drawn(draw: Callable[[Path], object]) -> str:
    """What `draw` writes to a file, as a data URL."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "figure.svg"
        draw(path)
        return KIND + _base64(path.read_bytes())
