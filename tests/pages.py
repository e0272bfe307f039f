"""Plays a page of the documentation as a reader would: in an empty folder, block after block.

`console` blocks hold commands after `$ ` and what they print; `python` blocks are doctests where
they have `>>>`, else they are executed; one session of Python goes through a page. A block below
a line **`name`** is a file of that name. `yaml` with a name is checked if it is a scenario or a
study; without one it holds keys of a scenario, which are set in that named by `onto`. `text`
blocks are not played, nor what is written between `begin` and `end` from the code. A comment
`test: ...` above a block says: `in FILE` (the text stands in that file of the project, whose own
test plays it), `onto FILE` (keys of that scenario), `exit N`.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from desim import load
from desim.experiments.studies.study import plan
from desim.experiments.tuning.candidates import planned
from desim.interface.cli import main
from desim.scenario.load import parse

ROOT = Path(__file__).resolve().parents[1]
QUICKSTART = ROOT / "scenarios" / "quickstart.yaml"
FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>.*)$")
FILE = re.compile(r"^\*\*`([\w./-]+)`\*\*$")
NOTE = re.compile(r"^<!-- test: (\w+) (.*) -->$")
WRITTEN = re.compile(r"<!-- begin ([\w-]+) -->.*?<!-- end \1 -->", re.DOTALL)
COMPARE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
COMPILING = ("compiling for this machine", "compiled ")
CONDITIONS = (  # on stderr, of a run
    "links:", "uplinks:", "downlinks:", "edges:", "devices:", "first ", "coordinator:", "privacy: ",
)  # fmt: skip


class Wrong(AssertionError):
    """The page says one thing, and another happens."""


@dataclass(frozen=True)
class Block:
    """A block of code: `line` is the first of its text; `name`: its file; `note` of a comment."""

    language: str
    text: str
    line: int
    name: str = ""
    note: tuple[str, str] = ("", "")


def blocks(text):
    """The blocks of code of a page, in order."""
    lines = WRITTEN.sub(lambda part: "\n" * part[0].count("\n"), text).splitlines()
    found, note, name, at = [], ("", ""), "", 0
    while at < len(lines):
        if comment := NOTE.match(lines[at]):
            note = comment.groups()
        elif file := FILE.match(lines[at]):
            name = file[1]
        elif (fence := FENCE.match(lines[at])) and fence["language"]:
            end = lines.index(fence["fence"], at + 1)
            inner = "\n".join(lines[at + 1 : end]).strip("\n") + "\n"
            found.append(Block(fence["language"].strip(), inner, at + 2, name, note))
            at, note, name = end, ("", ""), ""
        elif lines[at].strip():
            name = ""
        at += 1
    return found


def mistake(text, folder):
    """What a page says wrongly first, played in `folder`, where one works; empty if nothing."""
    session = {"__name__": "__page__"}
    for block in blocks(text):
        word, rest = block.note
        try:
            if word == "in":
                if block.text.strip() not in (ROOT / rest).read_text("utf-8"):
                    raise Wrong(f"{rest} does not have this text")
            elif block.name:
                keep(block, folder / block.name)
            elif block.language in PLAYERS:
                PLAYERS[block.language](block, session)
            else:
                raise Wrong(f"nobody plays {block.language!r}")
        except Exception as error:
            return f"line {block.line}: {type(error).__name__}: {error}"
    return ""


def keep(block, path):
    """Write a file, and check it where it is a scenario or a study."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text, "utf-8")
    if block.language == "python":
        compile(block.text, block.name, "exec")
    elif block.language == "yaml":
        keys = parse(block.text, block.name).data
        if "problem" in keys:
            load(path)
        elif "tune" in keys:
            planned(path)
        elif "base" in keys:
            plan(path)


def keys_of_a_scenario(block, session):
    """Set each key of the block in the scenario it belongs to; InputError if it is not valid."""
    word, rest = block.note
    base = Path(rest) if word == "onto" else QUICKSTART
    tree = parse(block.text, "block")
    if tree.problems:
        raise Wrong(str(tree.problems))
    load(base if base.exists() else ROOT / base, dict(tree.data))


def python(block, session):
    """Doctests where there are prompts, else plain execution."""
    if ">>> " not in block.text:
        exec(compile(block.text, f"block on line {block.line}", "exec"), session)
        return
    test = doctest.DocTestParser().get_doctest(block.text, {}, "page", "page", block.line)
    test.globs = session
    told = io.StringIO()
    doctest.DocTestRunner(optionflags=COMPARE).run(test, out=told.write, clear_globs=False)
    if told.getvalue():
        raise Wrong(told.getvalue())


def console(block, session):
    """Run each command and compare what it prints; all but those noted end with code 0."""
    word, rest = block.note
    allowed = int(rest) if word == "exit" else 0
    for command, expected in commands(block.text):
        code, printed = in_process(command) if alone(command) else in_shell(command)
        if code != allowed:
            raise Wrong(f"$ {command}\nended with {code}, not {allowed}\n{printed}")
        if not shown(expected, printed):
            raise Wrong(f"$ {command}\nprinted\n{printed}\nand not\n{expected}")


def shown(expected, printed):
    """Whether a page shows what was printed, but for spaces and for what `...` leaves out."""
    parts = [re.escape(" ".join(part.split())) for part in expected.split("...")]
    return bool(re.fullmatch(r".*?\s?".join(parts), " ".join(printed.split()), re.DOTALL))


def commands(text):
    """(command, what it prints) for each prompt; a backslash joins lines."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.replace("\\\n", " ").partition("\n")
        yield command.strip(), expected


def alone(command):
    """Whether the command is one of desim's, without a shell's signs."""
    return command.startswith("desim ") and not re.search(r"[|&;<>$*]", command)


def in_process(command):
    """Exit code and output of `desim ...`, without a new Python; silent on compilation."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            main(shlex.split(command)[1:])
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    told = printed.getvalue().splitlines(keepends=True)
    return code, lasting(told)


def in_shell(command):
    """Exit code and output of a command in bash, with this Python and this desim first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    told = done.stdout.splitlines(keepends=True)
    return done.returncode, lasting(told)


def lasting(lines):
    """What is printed on any machine: not compiling, conditions, or progress of a slow one."""
    passing = re.compile(r"[^:]+: .* \(\d+%\)$")
    kept = [line for line in lines if not line.startswith((*COMPILING, *CONDITIONS))]
    return "".join(line for line in kept if not passing.match(line))


PLAYERS = {
    "console": console,
    "python": python,
    "yaml": keys_of_a_scenario,
    "text": lambda block, session: None,
}
