"""A run as one view may see it: nothing else that was computed from private data, and no seed.

What the ledger charges, and what follows from it, is covered by the epsilon that stands beside.
Everything else that a run stores comes from private data without a row of the ledger: states before
noise, iterates, metrics, digests of data, warnings, the paper's claim where it counts on the data.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from desim.agent_names import NETWORK
from desim.amounts import epsilon
from desim.columns import columns_of
from desim.errors import DesimError, InputError
from desim.privacy.accounting.views import MODELS, NAMELESS, Adversary, read_view, visible
from desim.runs.directory import UNENDED, digest
from desim.runs.joint import plain
from desim.runs.premises import plugged, readable_terms, trusted
from desim.runs.privacy import Statement, statement
from desim.runs.run import Run
from desim.scenario.tree import dumped

MANIFEST, README = "manifest.json", "README.md"
WRITTEN = (MANIFEST, README, "scenario.yaml", "releases.csv", "events.csv", "model.npz")
ADDRESSES = ["release"]  # columns that say where noise was drawn
ON_THE_WIRE = ("send", "deliver", "lost")
LEFT_OUT = (
    "the seed, and where noise was drawn: who has both removes the noise",
    "states before noise and iterates (state.npz, iterates.npz)",
    "all metrics: loss, error, accuracy and the like are computed from data and not charged",
    "digests of data, of the scenario and of private files; warnings; how and when the run ended",
    "the paper's claim, which may count on the data",
    "folders in which data lie: of words with a slash only what is behind the last one",
)
FOUND = 1 << 48  # seeds below can all be tried
GUESSED = (
    "the seed is small: who tries all such seeds finds it, as times and models tell which it is, "
    "and removes the noise; the epsilon is against who does not try (seeds go up to 2^63 - 1)"
)


def write_public(
    run: Run, folder: Path, view: str | None = None, delta: float | None = None,
    relation: str | None = None, anyway: bool = False,
) -> list[str]:  # fmt: skip
    """Write what a view may see and the statement that holds for it; return what is left out.

    view, delta, relation: default, the scenario's. anyway: where epsilon is infinite or a step was
    computed from data, too.
    InputError for such a run without it, one that has not ended, or a folder with other files.
    """
    if run.store.unchecked == UNENDED:
        raise InputError(f"export: {UNENDED}; allowed: a run that has ended")
    view = readable_terms(run).view if view is None else view
    account = statement(run, delta, view, relation)
    row = account.table.iloc[0]
    if np.isinf(row["rigorous epsilon"]) and not anyway:
        why = next((text for text in row["flags"] if text.startswith("infinite")), "infinite")
        raise InputError(
            f"export: epsilon for view {row['view']} is {why}; allowed: another view, or --anyway "
            "(anyway=True) where that is meant"
        )
    steps = [text for text in account.tuned if text.startswith("algorithm.")]
    if steps and not anyway:
        raise InputError(
            f"export: {steps[0]}, and sensitivities tell it; allowed: a run with numbers, or with "
            "problem.row_norm, or --anyway (anyway=True) where that is meant"
        )
    files, left_out = _public(run, read_view(row["view"]))
    _free(folder)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as beside:
        new = Path(beside)
        for name, content in files.items():
            if isinstance(content, pd.DataFrame):
                content.to_csv(new / name, index=False)
            elif isinstance(content, str):
                (new / name).write_text(content, "utf-8")
            else:
                np.savez(new / name, **content)
        said = _manifest(run, account, new, files, left_out)
        text = json.dumps(said, indent=2, ensure_ascii=False) + "\n"
        (new / README).write_text("\n".join(_readme(run, row, said)) + "\n", "utf-8")
        (new / MANIFEST).write_text(text, "utf-8")
        for name in WRITTEN:  # the manifest first: by it a folder is known again
            if (new / name).exists():
                (new / name).replace(folder / name)
            else:
                (folder / name).unlink(missing_ok=True)
    return left_out


def _public(run: Run, who: Adversary) -> tuple[dict[str, Any], list[str]]:
    """Files by name: tables, arrays or text; and what else there is, in words."""
    files: dict[str, Any] = {}
    left_out = list(LEFT_OUT)
    try:
        written = run.scenario.written()
        del written["seed"]
        head = f"# {run.name}, without its seed: the seed that is played by default is another one"
        files["scenario.yaml"] = f"{head}\n{dumped(_bare(written))}"
    except DesimError:
        left_out.append("the scenario: it cannot be read any more")
    events = run.events
    releases = run.releases
    seen = visible(columns_of(releases), who, columns_of(events))
    if trusted(run) and who.kind in MODELS:  # who replied is what keeps an amplified epsilon
        seen = (releases["agent"] == NETWORK).to_numpy()
        clocks = ["time", "seconds"]  # slow agents make rounds long
        releases, events = (one.drop(columns=clocks, errors="ignore") for one in (releases, events))
        left_out.append("times of sums, and what they cost where it is known who took part")
    files["releases.csv"] = releases[seen].drop(columns=ADDRESSES)
    if who.kind != "final-model":
        kind, own = events["kind"].astype(str), list(who.agents)
        mine = events["agent"].isin([NETWORK] if who.kind == "coordinator" else own)
        wire = who.kind == "eavesdropper"  # what is on the wire, else what happens to itself
        noticed = kind.isin(ON_THE_WIRE) if wire else mine & (kind != "lost")
        files["events.csv"] = events[noticed].drop(columns=[*ADDRESSES, "seq"])
    why = _withheld(run, who)
    if why:
        left_out.append(f"the final model: {why}")
    else:
        assert run.model is not None
        files["model.npz"] = {"model": run.model[-1]}
    return files, left_out


def _bare(value: Any) -> Any:
    """The same with names of files where paths were."""
    if isinstance(value, Mapping):
        return {key: _bare(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_bare(part) for part in value]
    if isinstance(value, Path) or (isinstance(value, str) and set(value) & set("/\\")):
        return str(value).replace("\\", "/").rstrip("/").rpartition("/")[2]
    return value


def _withheld(run: Run, who: Adversary) -> str:
    """Why the final model is no post-processing of visible releases; empty where it is."""
    if plugged(run)[0]:
        return "only the plug-in knows what its model is computed from"
    if who.kind == "direct":
        return "what others pass on is not in this view's epsilon"
    try:
        star = run.scenario.kind == "coordinator"
    except DesimError as error:
        return f"the scenario cannot be read ({str(error).splitlines()[0]})"
    if not star or run.model is None or not len(run.model):
        return "there is no coordinator, and agents' models hold what was not sent"
    return ""


def _free(folder: Path) -> None:
    """Make the folder; InputError for one that holds anything but an older such export."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; allowed: a folder")
    folder.mkdir(parents=True, exist_ok=True)
    old: tuple[str, ...] = ()
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads((folder / MANIFEST).read_text("utf-8"))
        old = WRITTEN if found["export"] == "public" else ()
    other = sorted(one.name for one in folder.iterdir() if one.name not in old)
    if other:
        raise InputError(f"{folder}: holds {other[0]}; allowed: an empty folder, or a new one")


def _manifest(
    run: Run, account: Statement, folder: Path, names: Iterable[str], left_out: list[str]
) -> dict[str, Any]:
    said = plain(account)
    del said["paper"], said["views"][0]["paper epsilon"]
    flags = said["views"][0]["flags"]
    flags[:] = [text for text in flags if "who took part" not in text]  # as it follows from that
    if int(run.manifest.get("seed", 0)) % 2**64 < FOUND:  # left out, but no secret
        flags.append(GUESSED)
    files = {
        name: {"bytes": (folder / name).stat().st_size, "sha256": digest(folder / name)}
        for name in names
    }
    return {
        "export": "public", "name": run.name, "desim": version("desim"), "statement": said,
        "files": files, "left out": left_out,
    }  # fmt: skip


def _readme(run: Run, row: Any, said: Mapping[str, Any]) -> Iterator[str]:
    view = str(row["view"])
    terms = f"view {view}, {row['relation']}, delta {row['delta']:g}, {row['method']}"
    yield f"# {run.name}, as {view} may see it\n"
    spent = epsilon(row["rigorous epsilon"], row["flags"])
    yield f"Epsilon {spent} of the agent that spends most ({terms}).\n"
    yield f"Advantage {row['risk'].advantage:.3g}; {row['risk'].words}.\n"
    if view not in NAMELESS:
        yield "For these eyes only: what they have put in themselves is not protected from them.\n"
    for title, texts in (
        ("It takes for granted", row["assumptions"]),
        ("Flags", said["statement"]["views"][0]["flags"]),
        ("Tuned on data, not charged", said["statement"]["tuned on data, not charged"]),
        ("Not in this folder", said["left out"]),
        ("Caveats", said["statement"]["caveats"]),
    ):
        if len(texts):
            yield f"## {title}\n"
            yield from (f"* {text}" for text in texts)
            yield ""
    yield "## Files\n"
    yield from (f"* {name}: sha256 {one['sha256']}" for name, one in said["files"].items())
