"""Spoiled files: data, traces, plug-ins, studies, run directories and command lines.

    python -m analysis.fuzz_files 3000

Each input starts as one that works. Something in it is then broken: bytes are flipped, cut off,
repeated or exchanged, a number becomes one of 400 digits, a file becomes a folder. desim must take
it or refuse it in words. A traceback, a warning of a library, more than SECONDS, or an epsilon that
differs from that of the whole run is a fault, is printed, and makes the exit code 1. Input number i
of a seed is always the same.
"""

import contextlib
import io
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
from ruamel.yaml import YAML

import desim
from analysis.fuzz_scenarios import arguments, late, printed
from analysis.fuzz_subjects import BASE, as_yaml, changed, subjects
from desim.errors import DesimError
from desim.interface.cli import main as command_line
from desim.scenario import build

SECONDS = 20
WORDS = [
    b"9" * 400, b"-" + b"9" * 400, b"1e999", b"-1e308", b"1e308", b"nan", b"inf", b"0x10", b"1_000",
    b"", b'"', b'""', b"'", b",", b";", b"\t", b"\n", b"\r", b"\r\n\r\n", b"\x00", b"\xff\xfe",
    b"\xef\xbb\xbf", b"\xc2\xbd", b"\xd9\xa1", b"\xe2\x88\x921", b"1,5", b"True", b"null", b"[]",
    b"=1+1", b"PAR1", b"PK\x03\x04", b"\x1f\x8b", b"#", b"a" * 100_000, b"agent", b"time", b"-0",
]  # fmt: skip
ENDINGS = ["", ".gz", ".xz", ".zip", ".zst", ".bz2", ".tar", ".npz", ".csv", ".parquet", ".txt"]
TRAPS = [
    b"raise KeyboardInterrupt", b"raise SystemExit(3)", b"raise GeneratorExit", b"yield None",
    b"yield 1", b"return None", b"raise BaseException('x')", b"import nothing_here", b"1/0", b"...",
    b"x = None", b"x = 'a'", b"del x", b"x = x[:1]", b"x = x * np.nan", b"x = x.astype(object)",
    b"hub = None", b"raise type('E', (Exception,), {'__str__': lambda s: 1/0})()", b"\x00", b"  (",
]  # fmt: skip
ARGUMENTS = [
    "run", "check", "list", "show", "plot", "report", "privacy", "audit", "retime", "replay",
    "resume", "study", "export", "schema", "compare", "warmup", "quickstart", "good.yaml", "run-a",
    "run-b", "nowhere", ".", "-o", "out", "--set", "seed=1", "stop.rounds=2", "=", "a=b=c",
    "problem=[", "--to", "csv", "perfetto", "--x", "epsilon", "time", "--delta", "2", "-1", "nan",
    "--view", "direct", "coordinator", "--network", "satellite", "--target", "loss=0.1", "loss",
    "--force", "--help", "--version", "--kind", "timeline", "--workers", "0", "\x00", "é", "", "--",
]  # fmt: skip


def spoiled(draw: random.Random, raw: bytes, name: str) -> bytes:
    """The bytes of a file with something wrong."""
    if name.endswith(".py") and draw.random() < 0.7:
        lines = raw.split(b"\n")
        spot = draw.randrange(len(lines))
        indent = lines[spot][: len(lines[spot]) - len(lines[spot].lstrip())]
        return b"\n".join([*lines[:spot], indent + draw.choice(TRAPS), *lines[spot:]])
    for _ in range(draw.choice([1, 1, 2, 4])):
        a, b = sorted(draw.randrange(len(raw) + 1) for _ in range(2))
        kind = draw.choice(
            ["word", "word", "cut", "drop", "twice", "flip", "swap", "empty", "rows"]
        )
        if kind == "word":
            cells = raw.replace(b"\n", b",").split(b",")
            old = draw.choice(cells)
            raw = raw.replace(old, draw.choice(WORDS), 1) if old else raw + draw.choice(WORDS)
        elif kind == "cut":
            raw = raw[:a]
        elif kind == "drop":
            raw = raw[:a] + raw[a + draw.randrange(1, 9) :]
        elif kind == "twice":
            raw = raw[:b] + raw[a:b] + raw[b:]
        elif kind == "flip" and raw:
            a = min(a, len(raw) - 1)
            raw = raw[:a] + bytes([raw[a] ^ (1 << draw.randrange(8))]) + raw[a + 1 :]
        elif kind == "swap":
            raw = raw[b:] + raw[a:b] + raw[:a]
        elif kind == "empty" and draw.random() < 0.2:
            raw = b""
        elif kind == "rows":
            lines = raw.split(b"\n")
            draw.shuffle(lines)
            raw = b"\n".join(lines)
    return raw


def _input(draw: random.Random, folder: Path, ready: Path, label: list[str]) -> None:
    """Spoil one file that a scenario reads; load, check and simulate it."""
    found = subjects()
    name = draw.choice(list(found))
    label.append(name)
    files, scenario = found[name]
    broken = draw.choice(list(files))
    ending = draw.choice(ENDINGS) if draw.random() < 0.2 else ""
    for file, raw in files.items():
        (folder / file).write_bytes(spoiled(draw, raw, file) if file == broken else raw)
    if ending and broken != "good.yaml":  # the same bytes under a name that promises others
        (folder / broken).rename(folder / (broken + ending))
        scenario = YAML(typ="safe").load(
            as_yaml(scenario).replace(broken.encode(), (broken + ending).encode())
        )
    if draw.random() < 0.02:
        (folder / broken).unlink(missing_ok=True)
        (folder / broken).mkdir(exist_ok=True)
    if name == "study":
        desim.study(folder / "study.yaml", folder / "out", workers=0)
        return
    (folder / "scenario.yaml").write_bytes(as_yaml(scenario))
    loaded = desim.load(folder / "scenario.yaml")
    build.check(loaded)
    desim.run(loaded, out=folder / "run")


def _stored(draw: random.Random, folder: Path, ready: Path, label: list[str]) -> None:
    """Spoil a file of a run directory; ask everything of it. A wrong epsilon is a fault."""
    run = folder / "run"
    shutil.copytree(ready / "run-a", run)
    victim = draw.choice(sorted(p for p in run.iterdir() if p.is_file()))
    kind = draw.choice(["spoil", "spoil", "other", "gone", "folder", "rows"])
    if kind == "spoil":
        victim.write_bytes(spoiled(draw, victim.read_bytes(), victim.name))
    elif kind == "other":
        shutil.copy(ready / "run-b" / victim.name, victim)
    elif kind == "rows" and victim.suffix == ".parquet":
        pd.read_parquet(victim).iloc[: draw.randrange(9)].to_parquet(victim)
    else:
        victim.unlink()
        if kind == "folder":
            victim.mkdir()
    task = draw.choice(
        ["epsilon", "show", "resume", "retime", "replay", "plot", "compare", "export", "privacy"]
    )
    label.append(f"{task} with {victim.name} {kind}")
    if task == "epsilon":
        shown = desim.open(run).epsilon()["epsilon"].max()
        if shown != desim.open(ready / "run-a").epsilon()["epsilon"].max():
            raise AssertionError(f"an epsilon of {shown}")
        return
    text = {
        "show": ["show", "run"],
        "resume": ["resume", "run"],
        "retime": ["retime", "run", "--network", "satellite", "-o", "out"],
        "replay": ["replay", "run"],
        "plot": ["plot", "run", "--x", draw.choice(["time", "epsilon", "bytes"]), "-o", "x.svg"],
        "compare": ["compare", "run", str(ready / "run-b"), "--target", "loss=0.1"],
        "export": ["export", "run", "--to", "csv", "-o", "tables"],
        "privacy": ["privacy", "run"],
    }[task]
    _command(text)


def _line(draw: random.Random, folder: Path, ready: Path, label: list[str]) -> None:
    """A command line of random words."""
    for name in ("run-a", "run-b"):
        shutil.copytree(ready / name, folder / name)
    (folder / "good.yaml").write_bytes(as_yaml(BASE))
    first = draw.choice([a for a in ARGUMENTS[:16] if a not in ("warmup", "audit")])
    words = [first, *draw.choices(ARGUMENTS, k=draw.randrange(5))]
    label.append(" ".join(words))
    _command(words)


def _command(words: list[str]) -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            command_line(words)
        except SystemExit as end:
            if end.code not in (0, 1, 2, None):
                raise AssertionError(f"exit code {end.code}") from None
            if end.code == 2 and not err.getvalue().strip():
                raise AssertionError("refused without a word") from None
    for bad in ("Traceback", "Warning:"):
        if bad in err.getvalue():
            raise AssertionError(err.getvalue()[-2000:])


def fuzz(count: int, seed: int, ready: Path) -> Iterator[tuple[str, str]]:
    """For each of `count` inputs its outcome and what is wrong with that."""
    signal.signal(signal.SIGALRM, late)
    home = Path.cwd()
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        kind: Callable[[random.Random, Path, Path, list[str]], None] = draw.choice(
            [_input, _input, _stored, _line]
        )
        label: list[str] = []
        outcome, fault, begin = "taken", "", time.monotonic()
        with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            os.chdir(name)
            signal.alarm(6 * SECONDS)  # some of it may be compiling
            try:
                kind(draw, Path(name), ready, label)
            except DesimError as error:
                outcome = "refused"
                fault = "" if str(error).strip() else "refused without a word"
            except BaseException as error:
                outcome = "fault"
                fault = "\n".join([type(error).__name__, *traceback.format_exc().splitlines()[-9:]])
            finally:
                signal.alarm(0)
                os.chdir(home)
        took = time.monotonic() - begin
        raw = sorted(
            {f"{w.category.__name__}: {w.message} ({w.filename}:{w.lineno})" for w in heard}
        )
        if raw and not fault:
            outcome, fault = "fault", "warnings: " + "; ".join(raw)
        if took > SECONDS and not fault:
            outcome, fault = "slow", f"{took:.0f} s"
        yield outcome, fault and f"number {number} {kind.__name__[1:]} {label}\n{fault}"


def store(folder: Path) -> None:
    """Two runs, run-a and run-b, which differ in their noise."""
    noisy = changed(privacy={"noise": {"kind": "gaussian", "sigma": 0.5}})
    noisy["problem"] = {**BASE["problem"], "clip": 1.0}
    noisy["algorithm"] = {"name": "dsgd", "alpha": 0.1}
    noisy["network"] = {**BASE["network"], "topology": "ring"}
    for run, sigma in (("run-a", 0.5), ("run-b", 0.1)):
        desim.run(desim.load(noisy, {"privacy.noise.sigma": sigma}), out=folder / run)


def main() -> None:
    """Print what became of them."""
    given = arguments(__doc__, 3000).parse_args()
    with tempfile.TemporaryDirectory() as name:
        ready = Path(name)
        store(ready)
        sys.exit(printed(fuzz(given.count, given.seed, ready), 250))


if __name__ == "__main__":
    main()
