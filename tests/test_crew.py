"""A crew of threads: each part of a wave is done once, by whoever is free."""

import threading

import numpy as np
import pytest
from cases import CASES
from test_engines import differences

import desim
from desim.engine.compiled import crew, star
from desim.engine.compiled.crew import DONE, NONE, awaited, noted, offered, shared_by, taken
from desim.numerics import jit, plain
from desim.numerics.jit import lean_kernel
from desim.numerics.tickets import swapped

PARTS = 20_000
TRAINING = {**CASES["plt-noisy"], "observe": {"metrics": []}}


@lean_kernel
def all_taken(shared, times):
    """Take parts while there are any; times (parts,): how often each was taken."""
    number = taken(shared)
    while number != NONE:
        times[number] += 1
        noted(shared)
        number = taken(shared)


@lean_kernel
def given(shared, parts):
    """Offer a wave."""
    offered(shared, parts)


def torn(shared):
    """A wrong twin of `taken`: others may take the same between its two steps."""
    seen = int(shared[0][0])
    if seen & crew.LEFT == 0:
        return NONE
    threading.Event().wait(1e-3)
    shared[0][0] = seen - 1
    return (seen & crew.LEFT) - 1


def in_threads(target, *inputs):
    threads = [threading.Thread(target=target, args=inputs) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_each_part_of_every_wave_is_taken_once():
    shared = tuple(shared_by(3))
    for parts in (PARTS, 1, 0, 7):
        times = np.zeros(PARTS, np.int64)
        given(shared, parts)
        in_threads(all_taken, shared, times)
        assert times.tolist() == [1] * parts + [0] * (PARTS - parts)
        assert shared[0][DONE] == parts
        awaited.py_func(shared, parts)


def test_parts_that_are_torn_are_noticed():
    shared, taken_by = tuple(shared_by(3)), []
    given(shared, 30)

    def all_torn():
        while (number := torn(shared)) >= 0:
            taken_by.append(number)

    in_threads(all_torn)
    assert sorted(taken_by) != list(range(30))


def test_a_number_is_swapped_only_for_what_was_expected():
    plain, compiled = np.array([3, 4]), np.array([3, 4])
    swap = lean_kernel(lambda array, place, expected, new: swapped(array, place, expected, new))
    for place, expected, new in ((0, 3, 9), (1, 3, 9), (1, 4, -1), (1, -1, -1)):
        assert swap(compiled, place, expected, new) == swapped(plain, place, expected, new)
        assert compiled.tolist() == plain.tolist()


@pytest.mark.parametrize(
    "changes",
    [
        {"problem.agents": 60},
        {"problem.agents": 60, "policy": "each", "stop.rounds": 700},
        {"problem.agents": 600, "policy": {"buffer": 90}, "stop.rounds": 40},
        {"problem.agents": 20, "policy": {"deadline": "200 ms"}, "stop.rounds": 30},
        {"problem.agents": 40, "observe": {"metrics": ["error"]}, "stop.metric": {"error": 1e-2}},
    ],
    ids=str,
)
def test_threads_change_no_bit(monkeypatch, changes):
    cohort, helped = desim.run(TRAINING, overrides={**changes, "engine": "cohort"}), set()
    monkeypatch.setattr(jit, "PARALLEL_WORK", 0)
    assist = star.assist
    monkeypatch.setattr(star, "assist", lambda *a: helped.add(a[0]) or assist(*a))
    serve = crew.Crew.__enter__

    def enter(self):
        serve(self)
        for _ in range(1000):  # until all are there
            if len(helped) == jit.threads() - 1:
                break
            threading.Event().wait(1e-3)
        return self

    monkeypatch.setattr(crew.Crew, "__enter__", enter)
    assert differences(desim.run(TRAINING, overrides=changes), cohort) == []
    assert helped == set(range(1, jit.threads()))


def test_a_crew_helps_compiled_rounds_alone(monkeypatch):
    """Beside plain Python, which other rounds that are compiled do not rule out, it would race."""
    advance, played, entered, seen = star.advance, plain.played, [], []

    def noted(inputs):
        seen.append((inputs[2][2], bool(entered), plain._contexts["at once"]))
        entered.clear()

    def told(*inputs):
        noted(inputs)
        return advance(*inputs)

    def plainly(kernel, inputs):
        noted(inputs)
        return played(advance, inputs)

    enter = crew.Crew.__enter__
    monkeypatch.setattr(crew.Crew, "__enter__", lambda self: entered.append(1) or enter(self))
    monkeypatch.setattr(plain, "rented", lambda: not plain._contexts["at once"])
    monkeypatch.setattr(plain, "rents", lambda kernel, _: kernel is told and len(seen) < 2)
    monkeypatch.setattr(plain, "played", plainly)
    monkeypatch.setattr(star, "advance", told)
    desim.run(TRAINING, overrides={"stop.rounds": 9})
    assert seen[:4] == [(1, False, 0), (1, False, 0), (1, True, 1), (6, True, 1)]
