"""Measured seconds, as analysis/fidelity keeps them: the law still says what the documents say."""

import numpy as np
import pandas as pd
import pytest
from mutant import mutant

from analysis.fidelity import losses
from analysis.fidelity.calibrated import AIM, CASES, HELD, off
from analysis.fidelity.sharing import FILE, PAIR, replayed
from analysis.fidelity.verdicts import MEASURED, barrier, errors_of
from desim.deployments.measuring import calibration, fitted_laws, lines, samples
from desim.scenario.sections.links import Tcp

SMALL = 100_000  # bytes: pairs that are soon sent again


@pytest.fixture(scope="module")
def pairs():
    """Pairs of small flows, the first of each kind."""
    rows = pd.read_csv(FILE)
    rows = rows[(rows["repeat"] == 0) & (rows["congestion"] == "reno")]
    small = rows.groupby(PAIR)["size"].transform("max") == SMALL
    return rows[small]


def apart(rows, groups):
    """|law / kernel - 1| of each message."""
    law = rows.groupby(groups, group_keys=False)[list(rows.columns)].apply(replayed)
    return np.abs(law / rows["seconds"] - 1.0)


@pytest.mark.slow
def test_two_flows_on_one_line_take_what_the_kernel_took(pairs):
    found = apart(pairs, PAIR)
    assert found.median() < 0.02
    assert (found < 0.1).mean() > 0.8


def test_large_flows_fill_no_queue_and_hear_over_their_line(pairs):
    """A megabyte beside a tenth of one: all wait in one queue, the short last packet, too."""
    rows = pd.read_csv(FILE)
    kind = (rows["congestion"] == "reno") & (rows["pair"] == 20) & (rows["repeat"] == 0)
    some = rows[kind & (rows["position"] < 2)]
    assert sorted(some["size"].unique()) == [SMALL, 10 * SMALL]
    assert np.abs(replayed(some) / some["seconds"] - 1.0).max() < 0.05


def test_flows_that_do_not_meet_are_noticed(pairs):
    assert (apart(pairs, [*PAIR, "flow"]) < 0.1).mean() < 0.6


@pytest.fixture(scope="module")
def lossy():
    """Kinds of messages of which packets were lost, of which all are soon sent again."""
    kinds = pd.read_csv(losses.FILE)
    return kinds[(kinds["congestion"] != "bbr") & (kinds["size"] == SMALL)]


def means_off(kinds, loss=None):
    """|law / kernel - 1| of the mean of each kind."""
    return np.array(
        [abs(losses.seconds(kind, loss).mean() / kind["mean"] - 1) for _, kind in kinds.iterrows()]
    )


def test_lost_packets_cost_what_they_cost_the_kernel(lossy):
    found = means_off(lossy)
    assert np.median(found) < 0.1
    assert (found < 0.15 + 2 * lossy["error"] / lossy["mean"]).all()


def test_losses_that_cost_nothing_or_twice_as_much_are_noticed(lossy):
    for loss in (0.0, 0.03):
        assert np.median(means_off(lossy, loss)) > 0.15


def test_deployments_took_what_was_simulated():
    plays = pd.read_csv(MEASURED / "deployments.csv")
    plays = plays[plays["kind"] == "kernel"]
    assert plays["name"].nunique() >= 24
    assert np.median(errors_of(plays)) < 0.01
    assert np.median(errors_of(plays, "ideal")) > 0.05
    assert (barrier(plays)["apart"] == 0.0).all()


def test_calibration_told_deployed_networks_and_devices():
    table = pd.read_csv(MEASURED / "calibrated.csv")
    assert set(table["case"]) == {case.name for case in CASES}
    held = table[table["what"].isin(HELD)]
    assert (off(held) < AIM).all()
    assert (off(table[table["what"] == "loss"]) < 0.2).all()


def check_calibration():
    """The messages and computations of a deployed run tell its network and devices again."""
    case = CASES[0]
    messages, computations = (
        pd.read_csv(MEASURED / f"calibrated-{what}.csv") for what in ("messages", "computations")
    )
    own = samples.Samples(
        messages.assign(attempts=1.0, sending=0.0), computations, tcp=Tcp(congestion="reno")
    )
    made = calibration.of_samples(own, apart=False)
    (line,) = made.lines.pooled
    assert line.latency == pytest.approx(case.latency, rel=AIM)
    assert line.rate == pytest.approx(case.rate, rel=0.01)
    assert 1.0 / made.devices.speed == pytest.approx(1.0 / case.speed, rel=AIM)
    assert line.late < 0.05


@pytest.mark.slow
def test_what_a_deployed_run_measured_tells_its_network_and_devices():
    check_calibration()


def test_calibration_without_tcp_is_noticed(monkeypatch):
    monkeypatch.setattr(lines, "by_tcp", lambda *terms: iter(()))
    with pytest.raises(AssertionError):
        check_calibration()


@pytest.mark.slow
def test_calibration_without_a_fixed_cost_is_noticed(monkeypatch):
    twin = mutant(fitted_laws, "at[0] + work / at[1:]", "work / at[1:]")
    monkeypatch.setattr(calibration, "devices_of", twin.devices_of)
    with pytest.raises(AssertionError):
        check_calibration()
