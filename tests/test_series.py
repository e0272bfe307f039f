"""Which runs belong together, what they are called, and what is left out of them."""

from pathlib import Path

import pytest
from mutant import mutant

from desim.errors import InputError
from desim.runs.reading import series


class Played:
    """A run of a scenario in a directory, or in memory."""

    def __init__(self, seed, status="done", name="small", place=None, **settings):
        self.manifest, self.status, self.name = {"seed": seed}, status, name
        self.directory = Path(place) if place else None
        self.alike = repr(settings)
        self.settings = {"name": name, "seed": seed, **settings}

    @property
    def scenario(self):
        return self

    def written(self):
        return self.settings


class Unknown(Played):
    """A run whose scenario is lost."""

    @property
    def alike(self):
        raise UnicodeDecodeError("utf-8", b"", 0, 1, "no text")

    @alike.setter
    def alike(self, value):
        pass

    def written(self):
        raise InputError("unknown")


def seeds(found):
    return [[run.manifest["seed"] for run in one.runs] for one in found]


def check_seeds(module):
    """Seeds of one scenario are a series; a seed that is there begins another, the same run not."""
    first = Played(1, place="a", rho=1.0)
    again = Played(1, place="../" + Path.cwd().name + "/a", rho=1.0)
    runs = [first, Played(3, place="o", rho=2.0), again, Played(2, rho=1.0), first]
    assert seeds(module.series_of(runs)) == [[1, 2], [3]]
    other = Played(1, place="b", rho=1.0)
    found = module.series_of([first, other, Played(2, rho=1.0)])
    assert seeds(found) == [[1, 2], [1]]
    assert [one.label for one in found] == ["a", "b"]
    assert seeds(module.series_of({"mine": [first, other, again, first]})) == [[1, 1]]
    assert seeds(module.series_of([Unknown(1), Unknown(2)])) == [[1], [2]]
    assert module.series_of([]) == module.series_of({"none": []}) == []


def check_ends(module):
    """Those that are not done are left out and counted, unless there are no others."""
    failed, stopped = Played(1, "failed"), Played(3, "stopped")
    for runs in ([failed, stopped, Played(1), Played(2)], {"small": [failed, stopped, Played(2)]}):
        (one,) = module.series_of(runs)
        assert one.runs[-1].manifest["seed"] == 2
        assert all(run.status == "done" for run in one.runs)
        assert (one.title, one.ends) == ("small", {"failed": 1, "stopped": 1})
    (one,) = module.series_of([failed, stopped])
    assert (one.title, len(one.runs), one.ends) == ("small (failed, stopped)", 2, {})
    found = module.series_of([Played(1), Played(1), failed])  # counted once
    assert [one.ends for one in found] == [{"failed": 1}, {}]


def test_series_are_seeds_of_one_scenario():
    check_seeds(series)
    check_ends(series)


@pytest.mark.parametrize(
    ("right", "wrong", "check"),
    [
        ("run.directory.resolve() if run.directory else id(run)", "id(run)", check_seeds),
        ("alike or number", "alike", check_seeds),
        ("seen[seed] += 1", "pass", check_seeds),
        ("() if turn else left_out", "left_out", check_ends),
        ('if run.status != "done"))', 'if run.status == "failed"))', check_ends),
    ],
)
def test_a_wrong_series_is_noticed(right, wrong, check):
    with pytest.raises(AssertionError):
        check(mutant(series, right, wrong))


def check_labels(module):
    """Names where they do; else one setting, two, or the directories."""

    def told(runs):
        return module.labels([[run] for run in runs])

    link = {"latency": 1.0, "loss": 0.0}
    every = Played(1, policy="all", link=link, place="a")
    late = Played(1, policy={"deadline": 2.0}, link=link, place="b")
    lossy = Played(1, policy="all", link={**link, "loss": 0.5}, place="c")
    alone = Played(1, name="alone", policy="each")
    assert told([every, alone]) == ["small", "alone"]
    assert told([every, late, alone]) == [
        "small: policy all", "small: policy {deadline: 2}", "alone",
    ]  # fmt: skip
    assert told([every, late, lossy]) == [
        "small: policy all, loss 0", "small: policy {deadline: 2}, loss 0",
        "small: policy all, loss 0.5",
    ]  # fmt: skip
    assert told([every, Played(2, policy="p" * 60, link=link, place="d")]) == ["a", "d"]
    assert told([every, Unknown(1, place="e"), alone]) == ["a", "e", "alone"]
    assert told([Played(1, rho=1), Played(2, rho=1)]) == ["small 1", "small 2"]
    assert module.labels([[every, late], [every], [alone]]) == ["a and 1 more", "a", "alone"]
    assert module.differing([every, lossy, Unknown(2)]) == [("link", "loss")]
    assert module.differing([every, alone]) == [("policy",), ("link", "latency"), ("link", "loss")]


def test_labels_say_what_runs_differ_in():
    check_labels(series)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("max(map(len, found)) <= MAX_LETTERS", "True"),
        ("if all(trees) else", "if any(trees) else"),
        ('leaves({**tree, "name": "", "seed": 0})', "leaves(tree)"),
        ("len(set(found)) == len(found)", "True"),
        ("not isinstance(tree, Mapping) or", "isinstance(tree, Mapping) and"),
    ],
)
def test_a_wrong_label_is_noticed(right, wrong):
    with pytest.raises((AssertionError, TypeError)):
        check_labels(mutant(series, right, wrong))
