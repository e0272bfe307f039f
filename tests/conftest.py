"""What all tests use: reference values, real data where they are, and how tests share workers."""

import atexit
import ctypes
import gc
import json
import os
import shutil
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

# Before numpy, also of other processes: threads of OpenBLAS that wait spin, in small products for
# ten times what these take alone. tests/test_numerics.py tries two.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import effort
import pytest
from hypothesis import Phase, settings

from desim.engine import play
from desim.numerics.cores import cores
from desim.privacy.ledger.ledger import Ledger
from desim.scenario import registry

gc.set_threshold(1_000_000)  # what is compiled and collected stays: each look at it is for nothing
atexit.register(gc.freeze)  # else the interpreter's last collections walk through everything
os.environ.setdefault("DESIM_COMPILE", "at-once")  # tests/test_plain.py tries the others
IN_CI = os.environ.get("CI") == "true"
GOLDEN = Path(__file__).resolve().parent / "golden"
# A wrong twin need not fail on the smallest example: --hypothesis-profile=default looks for that.
# With these the second and the third worker begin, while the first one compiles what all will use:
# kernels that two compile at once are paid for twice.
COMPILING_NOTHING = (
    ("tests/test_style.py", "tests/test_torch_look.py", "tests/test_torch_cost.py"),
    (
        "tests/test_docs.py::test_the_docs", "tests/test_layers.py", "tests/test_wheel.py",
        "tests/test_torch_models.py",
    ),
)  # fmt: skip
# Their runs fork each agent, and the first worker begins with them: of a worker of 1.5 GB, as it is
# in the end, that takes several times what it takes of one of .5 GB, as it is at first.
FORKING = (
    "tests/test_clock_errors.py", "tests/test_consent.py", "tests/test_deploy.py",
    "tests/test_join.py", "tests/test_threats.py",
)  # fmt: skip
# What says of the repository as it is, whole: no case of theirs waits for its turn.
WHOLE = (
    "tests/test_style.py", "tests/test_docs.py::test_the", "tests/test_docs.py::test_a",
    "tests/test_layers.py", "tests/test_core.py", "tests/test_readme.py", "tests/test_wheel.py",
    "tests/test_conftest.py",
)  # fmt: skip
TURNS = 5
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.target)
settings.register_profile("any-example", settings(), phases=PHASES)
settings.load_profile("any-example")


def pytest_addoption(parser: pytest.Parser) -> None:
    """--turn says which cases of the whole suite are played."""
    parser.addoption(
        "--turn", choices=["all", *map(str, range(TURNS))],
        help="which fifth of the cases is played; all: every one, as where files are "
        "named (without it: by CHANGELOG.md, so that each change plays another fifth)",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """The quick loop tries properties less often; the whole suite takes cases in turn."""
    effort.quick = "not slow" in config.getoption("markexpr")
    if hasattr(config, "workerinput"):
        config.option.turn = config.workerinput["turn"]
    elif config.option.turn is None:
        whole = config.args_source is not config.ArgsSource.ARGS and not config.option.keyword
        changes = Path(__file__).resolve().parents[1] / "CHANGELOG.md"
        config.option.turn = str(crc32(changes.read_bytes()) % TURNS) if whole else "all"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All workers have the turn of this process: they are started with names of files."""
    node.workerinput["turn"] = node.config.option.turn


def out_of_turn(names: list[str], slow: list[bool], turn: int) -> list[bool]:
    """Which of the tests `names` wait for another turn, in the order of the names.

    Of a test of TURNS cases or more each is played in one turn, and some in every turn; one of
    fewer cases is played in each turn, or in one if it is slow.
    """
    cases = Counter(name.split("[")[0] for name in names)
    before: defaultdict[str, int] = defaultdict(int)
    waits = []
    for name, is_slow in zip(names, slow, strict=True):
        test = name.split("[")[0]
        many = cases[test] >= TURNS
        place = crc32(test.encode()) + (before[test] if many else 0)
        before[test] += 1
        waits.append((many or is_slow) and not test.startswith(WHOLE) and place % TURNS != turn)
    return waits


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_collection(session: pytest.Session) -> Any:
    """Each worker begins at another file of tests, and finds what the others have compiled.

    To compile a file with its assertions spelled out takes longer than to import it. All collect
    in the same order afterwards, which is when it is told what cannot be imported. What there is
    at the end stays: nobody looks for garbage in it.
    """
    gc.disable()
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    if number and not sys.dont_write_bytecode:
        for place in map(Path, session.config.args):
            paths = sorted(place.glob("test_*.py"))
            first = number * len(paths) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
            for path in paths[first:] + paths[:first]:
                with suppress(Exception, pytest.skip.Exception):
                    import_module(path.stem)
    collected = yield
    gc.enable()
    gc.freeze()
    return collected


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the cases of a test that is marked thin(n) all but every n-th are slow.

    See `begun_with` for their order.
    """
    before: dict[str, int] = {}
    for item in items:
        if (thin := item.get_closest_marker("thin")) is not None:
            name = item.nodeid.split("[")[0]
            before[name] = before.get(name, -1) + 1
            if before[name] % thin.args[0]:
                item.add_marker("slow")
    if config.option.turn != "all":
        slow = [item.get_closest_marker("slow") is not None for item in items]
        waits = out_of_turn([item.nodeid for item in items], slow, int(config.option.turn))
        pairs = list(zip(items, waits, strict=True))
        config.hook.pytest_deselected(items=[item for item, later in pairs if later])
        items[:] = [item for item, later in pairs if not later]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    order = begun_with([item.nodeid for item in items], workers)
    items[:] = [items[place] for place in order]


def begun_with(names: list[str], workers: int) -> list[int]:
    """In which order the tests `names` are played, by their places; workers begin evenly spaced.

    The first begins with what forks, and each of the next with a part of what compiles no kernels;
    a worker has several parts where there are fewer workers than parts.
    """
    groups = FORKING, *COMPILING_NOTHING
    parts: list[list[int]] = [[] for _ in range(len(groups) + 1)]
    for place, name in enumerate(names):
        belongs = (i for i, some in enumerate(groups) if name.startswith(some))
        parts[next(belongs, len(groups))].append(place)
    *first, rest = parts
    order: list[int] = []
    for i, part in enumerate(first):
        begin = len(names) * i // workers if i < workers else 0
        order += rest[: (more := max(0, begin - len(order)))]
        order, rest = order + part, rest[more:]
    return order + rest


@pytest.fixture(scope="module", autouse=True)
def frozen() -> None:
    """What is there is no garbage: thousands of tests, compiled code. To look at it takes a second.

    Whoever collects looks at what this module has left behind, and no more. Memory that is free
    goes back: it would take time in every process that is forked.
    """
    gc.collect()
    with suppress(OSError, TypeError, AttributeError):  # where there is no C library of GNU
        ctypes.CDLL(None).malloc_trim(0)
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than cores, for `-n auto`: many tests wait, for other processes and for sockets."""
    return cores() + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Neighbouring tests go to one worker: they share fixtures and what numba compiles."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture(scope="module", autouse=True)
def forgotten_with_a_module() -> Iterator[None]:
    """Plug-ins that fixtures of one module load are none of the next."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(registry, "_plugged", registry.Known(*map(dict, registry._plugged)))
        yield


MACHINE = ("fed_plt", "fedavg", "scaffold")  # whose rounds tests have in machine code
FEW_STEPS = 10_000  # of agents: so many take seconds in plain Python, and to compile takes longer


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What each test begins and ends with: one fixture, as each costs .1 ms in each of all tests.

    In CI pytest would work out all that differs in long arrays, for every wrong twin that fails.
    Plug-ins of one test are none of the next, and no test leaves it a figure: pyplot keeps what
    nobody closes.
    """
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(registry, "_plugged", registry.Known(*map(dict, registry._plugged)))
    monkeypatch.setitem(play.ENGINES, ROUNDS, few_formulas_compiled)
    yield
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None and (left := pyplot.get_fignums()):
        pyplot.close("all")
        pytest.fail(f"figures {left} are open: give them a file, or close them")


ROUNDS = "coordinator", "compiled"
compiled_rounds = play.ENGINES[ROUNDS]


def few_formulas_compiled(program: Any, world: Any) -> float:
    """Short runs of most methods, and of codecs, have their compiled rounds as plain Python.

    `machine_code` has all of them compiled.
    """
    room, _, name = type(program.formulas).__module__.rpartition(".")
    steps, rare = play._steps(world.settings, program), not world.settings.codecs.plain
    if room.startswith("desim.methods") and (rare or name not in MACHINE) and steps < FEW_STEPS:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("DESIM_COMPILE", "never")
            return compiled_rounds(program, world)
    return compiled_rounds(program, world)


@pytest.fixture
def machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled rounds are machine code, whatever is in them."""
    monkeypatch.setitem(play.ENGINES, ROUNDS, compiled_rounds)


@pytest.fixture
def keyboard() -> Iterator[None]:
    """SIGINT as a program in a terminal has it, whatever runs the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """drawn(share): from here on only this share of the noise that is declared."""
    whole = Ledger.release

    def change(share: float) -> None:
        def less(self: Any, time: Any, who: Any, round_: Any, exchange: Any, value: Any, *rest: Any,
                 **more: Any) -> Any:  # fmt: skip
            noisy, ids = whole(self, time, who, round_, exchange, value, *rest, **more)
            return value + share * (noisy - value), ids

        monkeypatch.setattr(Ledger, "release", less)

    return change


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real data: DESIM_SHARED, or `shared` beside the project.

    A test on data that are not there is skipped, except in CI.
    """
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("DESIM_SHARED", beside))
    if not (folder / "data").is_dir():
        message = f"no real data in {folder}: set DESIM_SHARED"
        if IN_CI:
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="session")
def golden() -> Callable[[str], dict[str, Any]]:
    """golden(name): the parsed file golden/<name>.json."""
    return cache(lambda name: json.loads((GOLDEN / f"{name}.json").read_text()))


# Pages are looked at in a browser, one for each file of tests.


@pytest.fixture(scope="module")
def chromium():
    """A browser; the tests are skipped where there is none, except in CI."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if found is None:
        message = "no chromium here: install the browser to test reports in it"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        plain = ["--no-sandbox", "--disable-gpu"]
        browser = play.chromium.launch(executable_path=found, args=plain)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """opened(path): the page, whose `complaints` are all that its console and requests said."""
    pages = []

    def opened(path, **options):
        page = chromium.new_page(**options)
        page.complaints = []
        page.on("console", lambda said: page.complaints.append(said.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda asked: page.complaints.append(asked.url))
        page.on("dialog", lambda asked: page.complaints.append(asked.message))
        page.goto(path.as_uri())
        page.complaints.remove(path.as_uri())
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
