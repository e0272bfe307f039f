"""The studies in analysis/studies: their statistics, and that a contest plays what it says."""

import numpy as np
import pytest
from looked_up import NUMBER, PART, lines_of, stored, strange

from analysis.reproductions import page
from analysis.reproductions.monte_carlo import MonteCarlo, simulations
from analysis.studies import over_networks
from analysis.studies.contests import CONTESTS, Contest, Point, reach
from analysis.studies.numbers import RESULTS
from analysis.studies.searches import Search, scores
from analysis.studies.standings import interval

TABLES = [
    (path.stem, name, part)
    for path in sorted(RESULTS.parent.glob("*.md"))
    for name, part in PART.findall(path.read_text("utf-8"))
]  # fmt: skip


def changed(line, draw):
    """The line with another last digit of one of its numbers, if it has long ones."""
    ends = [one.end() - 1 for one in NUMBER.finditer(line) if len(one[0]) > 3]
    if not ends:
        return line
    end = ends[draw.integers(len(ends))]
    return f"{line[:end]}{(int(line[end]) + draw.integers(3, 8)) % 10}{line[end + 1 :]}"


@pytest.mark.parametrize(("page_", "name", "part"), TABLES, ids=[f"{p}-{n}" for p, n, _ in TABLES])
def test_numbers_of_pages_are_those_of_the_studies(page_, name, part):
    """Pages are written by hand; most wrong digits are noticed."""
    rows, lines = stored(RESULTS / f"{name}.csv"), lines_of(part)
    assert len(lines) > 5
    assert [line for line in lines if strange(line, rows)] == []
    draw = np.random.default_rng(0)
    noticed = [strange(wrong, rows) for line in lines if (wrong := changed(line, draw)) != line]
    assert np.mean(noticed) > 0.6


def test_there_are_pages_with_numbers():
    assert len(TABLES) == 11
    assert {name for _, name, _ in TABLES} >= {"deadlines", "slow_neighbour", "robustness"}


def played(contest, point=None):
    [made] = simulations(contest.case(point or Point(0.4, 0.9, 5)), [1])
    return made, reach(made)


def test_the_profile_over_networks_is_that_of_the_stored_table():
    found = over_networks.over_networks(page.read(over_networks.TABLE, over_networks.TEXTS))
    assert found in (RESULTS.parent / "README.md").read_text("utf-8")
    first = [line.split(" | ") for line in found.splitlines()[2:]]
    assert sum(int(cells[2]) for cells in first) >= 10  # five networks, seconds and bytes; ties


def test_the_interval_of_a_median_is_that_of_the_sign_test():
    # n = 10: P(fewer than 2 of 10 below the median) = 11 / 1024 < 2.5 % < 56 / 1024
    assert interval(np.arange(10.0, 0.0, -1.0)) == (5.5, 2.0, 9.0)
    few = np.array([*range(1, 10), np.inf])
    assert interval(few) == (5.5, 2.0, 9.0)


def test_a_median_is_infinite_when_most_never_come_so_far():
    assert interval(np.array([1.0] * 4 + [np.inf] * 6))[0] == np.inf


@pytest.mark.thin(3)
@pytest.mark.parametrize("contest", CONTESTS[:16], ids=lambda c: f"{c.method}-{c.way}")
def test_every_contest_can_be_played(contest):
    made, found = played(contest)
    assert made.method.name == contest.method
    assert np.isfinite(found).all() or contest.method in ("fedavg", "fedlin", "5gcs")


def test_common_random_numbers_a_network_changes_seconds_not_rounds():
    (_, lan), (_, satellite) = (
        played(Contest(network, "fed-plt", "half")) for network in ("lan", "satellite")
    )
    assert lan[2] == satellite[2]
    assert satellite[0] > 10.0 * lan[0]


def test_a_search_narrows_around_the_best():
    search = Search(CONTESTS[0], epochs=5)
    unit = np.array([[0.5, 0.5], [0.1, 0.9]])
    width = search.box[1] - search.box[0]
    search.learn(unit, np.array([np.inf, np.inf]))
    assert (search.box[1] - search.box[0] == width).all()
    place = search.places(unit)[1]
    search.learn(unit, np.array([2.0, 1.0]))
    assert search.score == 1.0
    assert (search.place == place).all()
    assert (search.box[1] - search.box[0] <= width / 3.0 * (1.0 + 1e-12)).all()
    assert all(case.overrides["stop.time"] == 3.0 * np.e for case in search.cases(unit))


def test_hopeless_trials_do_not_meet_all_data_sets():
    contest = Contest("lan", "fed-plt", "all")
    points = [Point(0.4, 0.9, 5), Point(0.1, 0.1, 5), Point(0.4, 9.0, 5)]
    cases = {(0, n): contest.case(point) for n, point in enumerate(points)}
    with MonteCarlo(processes=1) as monte_carlo:
        found = scores(monte_carlo, cases, np.array([np.inf]))
        beaten = scores(monte_carlo, cases, np.array([found[0, 0] - 1.0]))
    assert np.isfinite(found[0, 0])
    assert found[0, 1] == found[0, 2] == np.inf
    assert set(beaten.values()) == {np.inf}
