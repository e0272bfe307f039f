"""The page of a player: one HTML file in which a run moves in virtual time.

It loads nothing from anywhere; that of a run which plays asks the local server that made it.
"""

from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from desim.interface.player.scene import scene
from desim.interface.reports.page import asset, embedded, filled, policy
from desim.runs.directory import output
from desim.runs.run import Run, as_run

ASSETS = files("desim.interface.player") / "assets"
SCRIPTS = ("clock.js", "pictures.js", "player.js")
ASKING = "connect-src 'self'"  # of the page's own server, which a file has not


def player(run: Run | str | Path, out: str | Path) -> Path:
    """Write one HTML file in which a run, or that of a directory, can be played; return its path.

    It shows who computes, whose messages are where, who is waited for, metrics and epsilon at each
    moment of virtual time, and needs no network and no other file. Of a log of more than 300,000
    events it draws one message in k, and says so. InputError where there is no run, or `out`
    cannot be written.
    """
    text = page(scene(as_run(run)))
    with output(Path(out), [".html", ".htm"]) as partial:
        partial.write_text(text, "utf-8", newline="\n")
    return Path(out)


def page(seen: dict[str, Any]) -> str:
    """The page of a scene as text; of one that plays, it asks its server what is new."""
    scripts = [asset(name, ASSETS) for name in SCRIPTS]
    styles = [asset("player.css", ASSETS)]
    allowed = policy(scripts, styles, figures=False)
    if seen["asks"]:
        allowed = f"{allowed}; {ASKING}"
    parts = {"scene": seen, "data": Markup(embedded(seen))}
    return filled(asset("player.html.jinja", ASSETS), parts, scripts, styles, allowed)
