"""Compiled code is found by what it was compiled from, not by where that lies."""

import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from numba import typeof
from numba.core import caching

import desim
from desim.methods.fedavg import Formulas
from desim.numerics import code_cache

PACKAGE = Path(desim.__file__).parent


def copied(folder: Path) -> Path:
    """A copy of the package in another folder."""
    shutil.copytree(PACKAGE, folder / "desim", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def found(tree: Path, cache: Path) -> tuple[int, str]:
    """How often `log_` was found compiled by a new process that imports desim from `tree`."""
    code = "from desim.numerics.elementary import log_ as f; f(2.0)"
    code += "; print(sum(f.stats.cache_hits.values()))"
    code += "; print(f.stats.cache_path)"
    own = os.environ | {"PYTHONPATH": str(tree), "DESIM_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, env=own, capture_output=True, text=True, check=True
    )
    hits, path = done.stdout.split()
    return int(hits), path


@pytest.mark.slow
def test_copies_share_what_they_compiled_and_an_edit_does_not(tmp_path: Path) -> None:
    one, other = copied(tmp_path / "one"), copied(tmp_path / "other")
    cache = tmp_path / "cache"
    first, path = found(one, cache)
    assert (first, found(other, cache)) == (0, (1, path))
    with (other / "desim" / "interface" / "cli" / "summary.py").open("a") as file:
        file.write("# no kernel depends on this\n")
    assert found(other, cache) == (1, path)
    with (other / "desim" / "numerics" / "elementary.py").open("a") as file:
        file.write("# an edit\n")
    assert found(other, cache)[0] == 0


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds `log_`."""
    cache = tmp_path_factory.mktemp("compiled")
    assert [found(PACKAGE.parent, cache)[0] for _ in range(2)] == [0, 1]
    return cache


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_what_a_crash_has_cut_off_is_compiled_anew(
    ending: str, compiled: Path, tmp_path: Path
) -> None:
    tree = PACKAGE.parent
    shutil.copytree(compiled, tmp_path, dirs_exist_ok=True)
    for file in tmp_path.rglob(f"*.{ending}"):
        file.write_bytes(file.read_bytes()[:20])
    assert [found(tree, tmp_path)[0] for _ in range(2)] == [0, 1]


def test_a_file_depends_on_what_it_imports_and_on_the_formulas_that_it_plays() -> None:
    seen = code_cache._imported("desim.engine.compiled.rounds")
    assert {
        "desim.problem.kernels.formulas",
        "desim.network.timeline.waiting_rule",
        "desim.numerics.jit",
    } <= seen
    assert "desim.methods.fed_plt" in seen  # what `begin` of fed-plt does
    assert "desim.methods.shared.declarations" not in code_cache._imported("desim.methods.fed_plt")
    assert code_cache.digest("desim.engine.compiled.rounds") != code_cache.digest(
        "desim.problem.kernels.sums"
    )


def test_a_file_depends_on_kernels_that_it_imports_late(monkeypatch) -> None:
    """Whether or not it imports them for type checkers, too."""
    sources, name = code_cache._sources(), "desim.network.timeline.messages"
    text = sources[name].replace(b"timeline.flow import", b"timeline.nowhere import")
    monkeypatch.setattr(code_cache, "_sources", lambda: {**sources, name: text})
    imported = code_cache._imported.__wrapped__
    assert "desim.network.timeline.flow" in imported(name)
    monkeypatch.setattr(code_cache, "LATER", code_cache.WHOLE)
    assert "desim.network.timeline.flow" not in imported(name)


def named_by_two_threads() -> bool:
    """Whether numba's settings are as before when two threads have made functions ready at once."""
    config = code_cache.numba.config
    before = config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES
    inside, outside = threading.Event(), threading.Event()

    def other() -> None:
        with code_cache.by_content(PACKAGE / "numerics" / "keys.py"):
            inside.set()
            outside.wait(1.0)

    thread = threading.Thread(target=other)
    try:
        with code_cache.by_content(PACKAGE / "numerics" / "elementary.py"):
            thread.start()
            inside.wait(0.2)
        outside.set()
        thread.join()
        return bool(before == (config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES))
    finally:
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = before


def test_threads_that_import_kernels_at_once_leave_settings_as_they_were(monkeypatch) -> None:
    assert named_by_two_threads()
    monkeypatch.setattr(code_cache, "_naming", nullcontext())
    assert not named_by_two_threads()


def compiled_by(processes: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a function is compiled that so many processes, here threads, want at once."""
    all_of_them = threading.Barrier(processes, timeout=0.5)
    index = folder / "index"

    def compiled(signature: tuple[str]) -> None:
        if not index.exists():
            with suppress(threading.BrokenBarrierError):
                all_of_them.wait()
            with index.open("a") as file:
                file.write(signature[0])

    def function() -> object:
        cache = object.__new__(caching.FunctionCache)
        cache._cache_path = str(folder)
        cache._cache_file = caching.IndexDataCacheFile(str(folder), "f", "")
        one = SimpleNamespace(compile=compiled, _cache=cache, __name__="f")
        return code_cache.guarded(one)

    monkeypatch.setattr(code_cache, "global_compiler_lock", nullcontext())
    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(lambda one: one.compile(("f",)), [function() for _ in range(processes)]))
    return len(index.read_text())


def test_of_processes_that_want_the_same_one_compiles_it(tmp_path, monkeypatch) -> None:
    assert compiled_by(3, tmp_path, monkeypatch) == 1


def test_without_a_lock_each_compiles_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(code_cache, "fcntl", None)
    assert compiled_by(3, tmp_path, monkeypatch) == 3


def test_nobody_waits_for_ever_for_a_process_that_stopped(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(code_cache, "PATIENCE", 0.1)
    with code_cache._alone(tmp_path / "f.lock"):
        assert compiled_by(1, tmp_path, monkeypatch) == 1


class Pair(NamedTuple):
    """A class of nobody else."""

    x: float


def test_code_for_a_class_of_a_plug_in_is_not_kept(tmp_path) -> None:
    """What is kept for it could be read by no process without that plug-in."""
    used, cache = [], object.__new__(caching.FunctionCache)
    cache._cache_path = str(tmp_path)
    cache._cache_file = caching.IndexDataCacheFile(str(tmp_path), "f", "")
    one = SimpleNamespace(_cache=cache, __name__="f")
    one.compile = lambda signature: used.append(type(one._cache) is caching.NullCache)
    code_cache.guarded(one)
    for value in (Pair(1.0), (1, (Pair(1.0), 2.0)), Formulas(1.0), np.ones(2)):
        one.compile((typeof(1), typeof(value)))
    assert used == [True, True, False, False]


class Elsewhere(NamedTuple):
    """A class that an older desim had in another file."""

    x: float


def unreadable(folder, monkeypatch, index):
    """What is read of a list of stored functions after a class in it has gone to another file."""
    file = index(str(folder), "f", "stamp")
    file.save((typeof(Elsewhere(1.0)), "here"), "code")
    with monkeypatch.context() as patch:
        patch.delattr(sys.modules[__name__], "Elsewhere")
        return file._load_index()


def test_a_list_with_a_class_that_is_not_there_any_more_is_empty(tmp_path, monkeypatch) -> None:
    assert unreadable(tmp_path, monkeypatch, code_cache.Index) == {}
    with pytest.raises(AttributeError, match="Elsewhere"):
        unreadable(tmp_path, monkeypatch, caching.IndexDataCacheFile)


def saved_where_no_room_is(store) -> None:
    """Code that is to be kept on a disk that is full."""

    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    cache = object.__new__(store)
    cache._enabled, cache._called = True, "it"
    cache._impl = SimpleNamespace(
        check_cachable=lambda _: True, locator=SimpleNamespace(ensure_cache_path=full)
    )
    cache.save_overload("signature", "code")


def test_a_full_disk_ends_no_run_that_compiles() -> None:
    saved_where_no_room_is(code_cache.Store)
    with pytest.raises(OSError, match="No space left"):
        saved_where_no_room_is(caching.FunctionCache)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders belong to nobody here")
def test_a_temporary_folder_of_others_is_not_read(monkeypatch, tmp_path):
    """Compiled code that somebody else could have written would run as this user's."""
    monkeypatch.setattr(code_cache.tempfile, "tempdir", str(tmp_path))
    own = code_cache._own_temporary.__wrapped__
    usual = tmp_path / f"desim-{os.getuid()}"
    assert own() == usual
    assert own() == usual
    assert stat.S_IMODE(usual.stat().st_mode) == 0o700
    usual.chmod(0o777)
    assert own() != usual
    usual.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    usual.symlink_to(tmp_path / "elsewhere")
    assert own() != usual
    usual.unlink()
    usual.write_text("")
    assert own().is_dir()
