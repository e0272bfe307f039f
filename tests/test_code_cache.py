"""Compiled code is found by what it was compiled from, not by where that lies."""

import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from numba.core import caching

import desim
from desim import code_cache

PACKAGE = Path(desim.__file__).parent


def copied(folder: Path) -> Path:
    """A copy of the package in another folder."""
    shutil.copytree(PACKAGE, folder / "desim", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def found(tree: Path, cache: Path) -> tuple[int, str]:
    """How often `log_` was found compiled by a new process that imports desim from `tree`."""
    code = "from desim.elementary import log_ as f; f(2.0); print(sum(f.stats.cache_hits.values()))"
    code += "; print(f.stats.cache_path)"
    own = os.environ | {"PYTHONPATH": str(tree), "DESIM_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, env=own, capture_output=True, text=True, check=True
    )
    hits, path = done.stdout.split()
    return int(hits), path


def test_copies_share_what_they_compiled_and_an_edit_does_not(tmp_path: Path) -> None:
    one, other = copied(tmp_path / "one"), copied(tmp_path / "other")
    cache = tmp_path / "cache"
    first, path = found(one, cache)
    assert (first, found(other, cache)) == (0, (1, path))
    with (other / "desim" / "cli" / "summary.py").open("a") as file:
        file.write("# no kernel depends on this\n")
    assert found(other, cache) == (1, path)
    with (other / "desim" / "elementary.py").open("a") as file:
        file.write("# an edit\n")
    assert found(other, cache)[0] == 0


def test_a_file_depends_on_what_it_imports_and_on_the_formulas_that_it_plays() -> None:
    seen = code_cache._imported("desim.kernels.rounds")
    assert {"desim.kernels.formulas", "desim.kernels.clients", "desim.jit"} <= seen
    assert "desim.algorithms.fed_plt" in seen  # what `begin` of fed-plt does
    assert "desim.algorithms.method" not in code_cache._imported("desim.algorithms.fed_plt")
    assert code_cache.digest("desim.kernels.rounds") != code_cache.digest("desim.kernels.sums")


def saved_by_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: bool) -> set[int]:
    """Numbers that readers of two signatures get, which two processes have kept at once."""
    monkeypatch.setenv("DESIM_CACHE_DIR", str(tmp_path))
    both = threading.Barrier(2, timeout=0.5)
    files = [caching.IndexDataCacheFile(str(tmp_path), "f", "") for _ in range(2)]

    def late(self: object, overloads: object) -> None:
        with suppress(threading.BrokenBarrierError):
            both.wait()  # both have read the index before one writes it
        write(self, overloads)

    write = caching.IndexDataCacheFile._save_index
    monkeypatch.setattr(caching.IndexDataCacheFile, "_save_index", late)
    for file in files if lock else []:
        stats = SimpleNamespace(cache_path=str(tmp_path))
        code_cache.guarded(SimpleNamespace(_cache=SimpleNamespace(_cache_file=file), stats=stats))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda n: files[n].save(("signature", n), n), range(2)))
    return {n for n in range(2) if files[0].load(("signature", n)) == n}


def test_two_processes_that_keep_code_at_once_keep_both(tmp_path, monkeypatch) -> None:
    assert saved_by_threads(tmp_path, monkeypatch, lock=True) == {0, 1}


def test_without_a_lock_one_is_lost(tmp_path, monkeypatch) -> None:
    assert saved_by_threads(tmp_path, monkeypatch, lock=False) != {0, 1}
