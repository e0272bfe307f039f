"""Figures in a page, as data URLs: nothing is fetched from anywhere."""

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

KIND = "data:image/svg+xml;base64,"


def drawn(draw: Callable[[Path], object]) -> str:
    """What `draw` writes to a file, as a data URL."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "figure.svg"
        draw(path)
        return KIND + b64encode(path.read_bytes()).decode()
