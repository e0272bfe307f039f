"""Where the reference values lie: DESIM_SHARED, or the folder `shared` beside the project."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from desim.scenario import registry


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plug-ins of one test are none of the next."""
    monkeypatch.setattr(registry, "_plugged", registry.Known(*map(dict, registry._plugged)))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with golden/, data/ and notes/; the test is skipped without it, except in CI."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("DESIM_SHARED", beside))
    if not (folder / "golden").is_dir():
        message = f"no reference values in {folder}: set DESIM_SHARED"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="session")
def golden(shared: Path) -> Callable[[str], dict[str, Any]]:
    """golden(name): the parsed file golden/<name>.json."""
    read: dict[str, dict[str, Any]] = {}

    def golden(name: str) -> dict[str, Any]:
        if name not in read:
            read[name] = json.loads((shared / "golden" / f"{name}.json").read_text())
        return read[name]

    return golden
