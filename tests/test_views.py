"""Which releases an adversary sees, by hand and in runs; views that mean nothing are refused."""

import numpy as np
import pandas as pd
import pytest
from cases import LOSSY, graph, merged, star
from hypothesis import given
from mutant import mutant
from releases import AGENTS, LAW, ROWS, joined, logs, table

import desim
from desim.columns import columns_of
from desim.errors import InputError
from desim.privacy.accounting import views
from desim.privacy.accounting.accountants import account


def events(*links):
    """Deliveries (from, to, release); those of a coordinator have agent or peer -1."""
    columns = ["peer", "agent", "release"]
    numbers = np.array(links, np.int64).reshape(-1, 3)
    return pd.DataFrame(numbers, columns=columns).assign(kind="deliver")


PATH = joined(
    table(seen_by="neighbours", agent=0, release=10, delivered=1),
    table(seen_by="neighbours", agent=1, release=11, delivered=2),
    table(seen_by="neighbours", agent=2, release=12, delivered=0),
    table(seen_by="neighbours", agent=2, release=13, delivered=1),
)  # agents in a row, 0 - 1 - 2; release 12 was lost
HEARD = events((0, 1, 10), (1, 0, 11), (1, 2, 11), (2, 1, 13))
SEEN = {
    "eavesdropper": [10, 11, 12, 13],
    "neighbour:0": [11, 13],
    "neighbour:1": [10, 13],
    "direct:0": [11],
    "direct:1": [10, 13],
    "direct:2": [11],
    "collusion:[0, 2]": [11],
    "collusion:[1]": [10, 13],
    "final-model": [10, 11, 13],
}


def check_path(module):
    for view, expected in SEEN.items():
        who = module.adversary(view, 3)
        mask = module.visible(columns_of(PATH), who, columns_of(HEARD))
        assert PATH.release[mask].tolist() == expected, view
        assert str(who) == view


def test_each_view_of_a_path_of_three():
    check_path(views)


def check_charged(module):
    """A lost release costs as soon as a later one arrives, because that one goes on from it."""
    who = module.adversary("final-model", 2)
    log = table(4, 2, delivered=[1, 0, 0, 1, 1, 0, 0, 0])
    np.testing.assert_array_equal(module.charged(columns_of(log), who), [1, 1, 1, 1, 1, 0, 0, 0])
    np.testing.assert_array_equal(
        module.charged(columns_of(log[::-1]), who), [0, 0, 0, 1, 1, 1, 1, 1]
    )
    assert module.charged(columns_of(log.iloc[:0]), who).shape == (0,)


def test_a_lost_release_is_charged_with_the_next_one():
    check_charged(views)
    with pytest.raises(AssertionError):
        check_charged(mutant(views, "return np.asarray(place", "return reached & np.asarray(place"))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('["delivered"] > 0', '["delivered"] > 1'),
        ('~np.isin(releases["agent"]', 'np.isin(releases["agent"]'),
        ('(log["agent"] == agent)', '(log["peer"] == agent)'),
        ("np.asarray(others & arrived & _received", "np.asarray(others & arrived | _received"),
        ("np.ones(len(arrived), bool)", "arrived"),
    ],
)
def test_a_wrong_view_is_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_path(mutant(views, right, wrong))


def test_a_coordinator_sees_the_uploads_that_arrive():
    uploads = table(3, 2, delivered=[1, 0, 1, 1, 1, 1])
    mask = views.visible(columns_of(uploads), views.adversary("coordinator", 2))
    np.testing.assert_array_equal(mask, [True, False, True, True, True, True])
    with pytest.raises(InputError, match="no coordinator"):
        views.require_seen(views.adversary("coordinator", 3), False, len(PATH))
    views.require_seen(views.adversary("coordinator", 3), True, len(PATH))
    nothing = uploads.iloc[:0]
    assert len(views.visible(columns_of(nothing), views.adversary("coordinator", 2))) == 0


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ("neighbour", "names no agent; allowed: neighbour:3"),
        ("neighbour:3", "agents 0 to 2"),
        ("neighbour:-1", "allowed"),
        ("direct:7", "agents 0 to 2"),
        ("collusion:[]", "allowed"),
        ("collusion:[0, 5]", "agents 0 to 2"),
        ("eavesdroper", "did you mean 'eavesdropper'"),
        ("", "allowed"),
    ],
)
def test_a_view_that_names_nobody_is_refused(view, message):
    with pytest.raises(InputError, match=message):
        views.adversary(view, 3)


def test_a_direct_view_needs_the_deliveries():
    with pytest.raises(InputError, match="no events"):
        views.visible(columns_of(PATH), views.adversary("direct:1", 3))


def out_of_order(log, heard, module):
    """Views with a smaller final epsilon than the one before, all of which each of them sees."""
    found = []
    for j in range(AGENTS):
        below = np.zeros(AGENTS)
        for view in (f"direct:{j}", f"neighbour:{j}", "final-model", "eavesdropper"):
            who = module.adversary(view, AGENTS)
            cost = log[module.charged(columns_of(log), who, columns_of(heard))]
            final = account(cost, rows=ROWS).final
            found += [view] * bool((final < below).any())
            below = final
    return found


def heard_of(log):
    """Deliveries of the log's releases to the agents after the sender."""
    links = [
        (agent, (agent + step) % AGENTS, release)
        for agent, release, count in zip(log.agent, log.release, log.delivered, strict=True)
        for step in range(1, count + 1)
    ]
    return events(*links)


@LAW
@given(logs())
def test_who_sees_more_learns_more(log):
    assert out_of_order(log, heard_of(log), views) == []


def test_a_view_that_forgets_losses_is_out_of_order():
    wrong = mutant(views, "np.ones(len(arrived), bool)", 'releases["delivered"] > 1')
    log = table(4, AGENTS, seen_by="neighbours", delivered=1)
    assert "eavesdropper" in out_of_order(log, heard_of(log), wrong)


def test_on_a_star_direct_is_nothing_coordinator_less_and_eavesdropper_all():
    noisy = {"algorithm": {"name": "fed-plt", "rho": 0.5, "local": {"solver": "noisy", "tau": 0.3}}}
    drop = merged(LOSSY, {"link": {"on_loss": "drop", "loss": 0.3}})
    done = desim.run(star(**noisy, problem={"clip": 1.0}, network=drop, policy={"deadline": "1 s"}))
    worst = [
        done.account(view=view).worst
        for view in ("direct:2", "neighbour:2", "coordinator", "eavesdropper")
    ]
    assert worst[0] == 0.0
    assert 0.0 < worst[1] <= worst[2] <= worst[3]
    assert "on a star" in done.account(view="direct:2").flags[0]


def test_a_neighbour_on_a_graph_receives_what_its_neighbours_send():
    done = desim.run(graph(network={"topology": "ring"}))
    final = done.account(view="direct:2").final
    assert set(np.flatnonzero(final)) == {1, 3}
    everybody = done.account(view="neighbour:2").final
    assert set(np.flatnonzero(everybody)) == set(range(8)) - {2}
    np.testing.assert_array_equal(final[[1, 3]], everybody[[1, 3]])
    assert "optimistic" in done.account(view="direct:2").flags[0]
    with pytest.raises(InputError, match="no coordinator"):
        done.account(view="coordinator")
