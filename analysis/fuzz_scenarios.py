"""Mutated scenarios through load and check, some played: each is accepted or refused in words.

    python -m analysis.fuzz_scenarios 10000 --play 50

Whatever else comes out (a traceback, no word, more than SECONDS or MEMORY) is printed with the
scenario that did it, and the exit code is 1. Scenario number i of a seed is always the same.
"""

import argparse
import contextlib
import copy
import random
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

import desim
from desim.errors import InputError, RunError
from desim.scenario import build

ROOT = Path(__file__).resolve().parents[1]
SECONDS, MEMORY = 60, 6 << 30  # of processor time, since kernels may have to be compiled
NASTY: list[Any] = [
    None, True, False, "", " ", "no", "all", "auto", "none", 0, 1, -1, 2, 7, 0.5, -0.0, 1e-320,
    1e308, float("nan"), float("inf"), -float("inf"), 10**30, -(10**30), 2**63, 2**64 - 1,
    "9" * 5000, "10 ms", "-5 ms", "10 kg", "1e999 s", "5 %", "500 %", "inf", "∞", "10 ms", [], {},
    [[]], [[], [0]], [None], {"": 1}, {"a b": {}}, {"uniform": [5, 1]}, {"uniform": ["a"]},
    {"lognormal": [1, 1e9]}, {"trace": "/etc/passwd"}, "../../../etc/passwd", "/dev/zero", ".",
    "/proc/self/mem", "~nobody/x", "${HOME}", "[/red]", "$\\frac$", "a\x00b", "\x1b[31m", "é" * 90,
    {"normal": 1e200}, {"dirichlet": 1e-300}, {"regular": 10**9}, {"erdos_renyi": 1e-12},
    {"edges": [[0, 0]]}, {"edges": [[0, 10**18]]}, {"grid": [10**6, 10**6]}, {"quorum": 10**9},
    {"schedule": [[10**18]]}, {"deadline": "1e300 s"}, {"power": 1e6}, {"mlp": {"hidden": 10**12}},
    {"deadline": "1 ns", "at_least": 10**9}, {"quorum": 3, "at_most": "0 s"}, "each", 1e-9,
    {"adaptive": {"mad": 0, "times": 1e-300}}, {"adaptive": {"quantile": 1e-12}, "late": "carry"},
    {"adaptive": {"mad": 1e300}, "at_least": 1}, {"adaptive": {"mad": 3}, "at_most": "1e-300 s"},
    {"buffer": 1, "staleness": {"hinge": {"a": 1e308, "b": 1e308}}}, {"polynomial": 1e308},
    {"quorum": 1, "late": "carry", "staleness": {"polynomial": 1e-300}}, {"hinge": {}},
    {"choose": "fastest", "invite": 1}, {"choose": "oldest", "invite": 10**9},
    {"choose": "oort", "invite": 2, "alpha": 1e308, "pace": "1 ns", "window": 1, "most": 1},
    {"choose": "oort", "invite": 1, "exploration": 1, "exploration_least": 1, "quantile": 1e-300},
    {"choose": "power-of-choice", "invite": 1, "candidates": 2,
     "losses": {"clip": 1e-300, "sigma": 1e300}},
    {"choose": "tiers", "invite": 1, "tiers": 2, "credits": [0, 10**18], "probabilities": [1, 0]},
    {"choose": "available", "invite": 2}, {"choose": "round-robin", "invite": 1, "available": True},
    "float16", {"top-k": 1}, {"top-k": 1e-12}, {"random-k": 10**30}, {"quantise": {"bits": 2}},
    {"random-k": "50 %", "indices": "seeded", "error_feedback": "ef21"}, {"uplink": "float16"},
    {"top-k": "1 %", "downlink": {"quantise": {"bits": 32}}}, {"momentum": 1e308},
    {"adam": {"tau": 0}}, {"yogi": {"rate": -1}}, "fedasync", "fedbuff", "push-sum", "choco-sgd",
]  # fmt: skip
MARKS = ["!!python/object:os.system x", "&a [*a, *a]", "*b", "\t", "- ", "{", "'", "<<: *c", "\x00"]


def seeds() -> list[dict[str, Any]]:
    """Scenarios to begin with: those that are shipped, and those of tests."""
    folders = ("scenarios", "scenarios/papers", "tests/scenarios/valid")
    files = [file for folder in folders for file in sorted((ROOT / folder).glob("*.yaml"))]
    found: list[dict[str, Any]] = []
    for file in files:
        data = YAML(typ="safe", pure=True).load(file)
        with contextlib.suppress(InputError):  # data that have not been fetched
            desim.load(file)
            found.append(_absolute(data, file.parent))
    return found


def _absolute(data: Any, folder: Path) -> Any:
    if isinstance(data, dict):
        return {key: _absolute(item, folder) for key, item in data.items()}
    if isinstance(data, list):
        return [_absolute(item, folder) for item in data]
    if isinstance(data, str) and "." in data and (folder / data).is_file():
        return str(folder / data)
    return data


def places(data: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in nested dicts and lists."""
    items = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data if isinstance(data, list) else [])
    )
    for key, item in items:
        yield (*place, key)
        yield from places(item, (*place, key))


def at(data: Any, place: tuple[Any, ...]) -> Any:
    """What is at a place."""
    for key in place:
        data = data[key]
    return data


def mutated(draw: random.Random, start: list[dict[str, Any]]) -> dict[str, Any] | str:
    """One scenario with a few things wrong, or its text with a character wrong."""
    data: dict[str, Any] = copy.deepcopy(draw.choice(start))
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        place = draw.choice(list(places(data)) or [("name",)])
        parent = at(data, place[:-1])
        kind = draw.choice(["value", "value", "value", "delete", "typo", "other", "graft", "scale"])
        if kind == "value":
            parent[place[-1]] = copy.deepcopy(draw.choice(NASTY))
        elif kind == "delete":
            del parent[place[-1]]
        elif kind == "typo" and isinstance(parent, dict):
            name = str(place[-1])
            parent[name[: draw.randrange(len(name) + 1)] + draw.choice("xe_ ")] = parent.pop(
                place[-1]
            )
        elif kind == "other":
            parent[place[-1]] = copy.deepcopy(at(data, draw.choice(list(places(data)))))
        elif kind == "graft":
            other = draw.choice(start)
            key = draw.choice(list(other))
            data[key] = copy.deepcopy(other[key])
        elif isinstance(parent[place[-1]], int | float):
            parent[place[-1]] = parent[place[-1]] * draw.choice([-1, 0, 1e-9, 3, 1e9, 10**12])
    return data if draw.random() < 0.8 else _scratched(draw, data)


def _scratched(draw: random.Random, data: dict[str, Any]) -> str:
    text = repr(data).replace("True", "true").replace("False", "false").replace("None", "null")
    spot = draw.randrange(len(text))
    return text[:spot] + draw.choice(MARKS) + text[spot + draw.randrange(3) :]


class Late(BaseException):
    """It took too long."""


def late(number: int, frame: Any) -> None:
    """Raise Late: what a timer does."""
    raise Late


def tried(scenario: dict[str, Any] | str, play: bool) -> str:
    """What became of a scenario: accepted, refused, played, failed or silent; faults raise."""
    with tempfile.TemporaryDirectory() as folder:
        source: Any = scenario
        if isinstance(scenario, str):
            source = Path(folder) / "s.yaml"
            source.write_text(scenario, "utf-8")
        try:
            loaded = desim.load(source)
            build.check(loaded)
            if play:
                short = desim.load(loaded.written(), {"stop": {"rounds": 2, "time": "1000 s"}})
                desim.run(short, out=Path(folder) / "run")
        except InputError as error:
            return "refused" if str(error).strip() else "silent"
        except RunError:
            return "failed"
        return "played" if play else "accepted"


def fuzz(count: int, play: int, seed: int) -> Iterator[tuple[str, str]]:
    """For each of `count` scenarios its outcome and what is wrong with that; `play` are played."""
    start, played = seeds(), 0
    signal.signal(signal.SIGPROF, late)
    for number in range(count):
        scenario, fault = mutated(random.Random(f"{seed} {number}"), start), ""
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            with np.errstate(all="ignore"):
                outcome = tried(scenario, played < play)
            played += outcome in ("played", "failed")
            fault = "refused without a word" if outcome == "silent" else ""
        except (Late, Exception) as error:
            outcome = "fault"
            fault = "\n".join([type(error).__name__, *traceback.format_exc().splitlines()[-7:]])
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        yield outcome, fault and f"number {number}: {scenario!r:.1500}\n{fault}"


def printed(found: Iterable[tuple[str, str]], every: int) -> int:
    """The exit code after outcomes and faults: faults are printed, and sums of outcomes."""
    outcomes = Counter[str]()
    for outcome, fault in found:
        outcomes[outcome] += 1
        if fault:
            print(f"{fault}\n", flush=True)
        if outcomes.total() % every == 0:
            print(f"{outcomes.total()} inputs: {dict(outcomes)}", flush=True)
    print(f"{outcomes.total()} inputs: {dict(outcomes)}", flush=True)
    return int(not {"fault", "silent", "slow"}.isdisjoint(outcomes))


def until(tried: Callable[[int], tuple[str, str]], count: int) -> tuple[Counter[str], int]:
    """Outcomes of draws until `count` were played, of which faults are printed, and how many."""
    counts, number, faults = Counter[str](), 0, 0
    while counts.total() - counts["refused"] - counts["failed"] < count:
        with np.errstate(all="ignore"):
            outcome, fault = tried(number)
        counts[outcome], number = counts[outcome] + 1, number + 1
        if fault:
            faults += 1
            print(fault, flush=True)
    print(f"{number} draws: {dict(counts)}; {faults} faults", flush=True)
    return counts, faults


def arguments(about: str | None, count: int) -> argparse.ArgumentParser:
    """The command line of a fuzzer."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("count", type=int, nargs="?", default=count)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main() -> None:
    """Print what became of them."""
    parser = arguments(__doc__, 10_000)
    parser.add_argument("--play", type=int, default=50, help="how many are played")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.exit(printed(fuzz(given.count, given.play, given.seed), 1000))


if __name__ == "__main__":
    main()
