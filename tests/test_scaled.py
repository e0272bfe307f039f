"""A world's factors on a scenario give what a user gets who writes the products by hand."""

import numpy as np
import pytest
from cases import CASES, star
from mutant import mutant

import desim
from desim.errors import InputError
from desim.scenario import scaled as module
from desim.scenario.scaled import INPUTS, moved, scaled, transported

FACTORS = {
    "latency": 1.5, "bandwidth": 0.3, "speed": 0.7, "loss": 1.9, "behind": 0.6, "overhead": 1.3,
}  # fmt: skip
F, B, S, P, L, C = FACTORS.values()


def star_with(**sections):
    return desim.load({**star(), **sections})


NETWORKS = {
    "plain": (
        {"link": {"latency": 0.02, "bandwidth": 1e7, "loss": 0.01}},
        {"link": {"latency": 0.02 * F, "bandwidth": 1e7 * B, "loss": 0.01 * P}},
    ),
    "laws": (
        {"link": {"latency": {"uniform": [0.01, 0.03]}, "bandwidth": {"lognormal": [1e7, 0.5]},
                  "jitter": {"lognormal": 0.3}, "timeout": 0.2}},
        {"link": {"latency": {"uniform": [0.01 * F, 0.03 * F]},
                  "bandwidth": {"lognormal": [1e7 * B, 0.5]}, "jitter": {"lognormal": 0.3},
                  "timeout": 0.2}},
    ),
    "more laws": (
        {"link": {"latency": {"gamma": [0.01, 2.0]}, "bandwidth": {"normal": [1e7, 1e6]}},
         "uplink": {"latency": {"exponential": 0.03}},
         "downlink": {"latency": {"shifted_exponential": [0.01, 0.02]}}},
        {"link": {"latency": {"gamma": [0.01 * F, 2.0]},
                  "bandwidth": {"normal": [1e7 * B, 1e6 * B]}},
         "uplink": {"latency": {"exponential": 0.03 * F}},
         "downlink": {"latency": {"shifted_exponential": [0.01 * F, 0.02 * F]}}},
    ),
    "sides and single links": (
        {"link": {"latency": 0.02}, "uplink": {"bandwidth": 1e6, "loss": 0.02},
         "downlink": {"latency": 0.01},
         "links": [{"sender": 1, "latency": 0.2, "bandwidth": 1e5}, {"receiver": 2,
                                                                     "latency": 0.3}]},
        {"link": {"latency": 0.02 * F, "bandwidth": 1e8 * B},
         "uplink": {"bandwidth": 1e6 * B, "loss": 0.02 * P}, "downlink": {"latency": 0.01 * F},
         "links": [{"sender": 1, "latency": 0.2 * F, "bandwidth": 1e5 * B},
                   {"receiver": 2, "latency": 0.3 * F}]},
    ),
    "behind lines": (
        {"link": {"latency": 0.01, "bandwidth": 1e8}, "behind": {
            "sites": 2, "uplink": {"bandwidth": {"lognormal": [2e6, 0.5]}, "latency": 0.004},
            "downlink": {"bandwidth": "inf"}}},
        {"link": {"latency": 0.01 * F, "bandwidth": 1e8 * B}, "behind": {
            "sites": 2, "downlink": {"bandwidth": "inf"},
            "uplink": {"bandwidth": {"lognormal": [2e6 * L, 0.5]}, "latency": 0.004 * F}}},
    ),
    "bursts, at most 1": (
        {"link": {"loss": {"gilbert_elliott": {"good": 1.0, "bad": 0.1, "loss_good": 0.01,
                                               "loss_bad": 0.9}}}},
        {"link": {"latency": 0.01 * F, "bandwidth": 1e8 * B, "loss": {"gilbert_elliott": {
            "good": 1.0, "bad": 0.1, "loss_good": 0.01 * P, "loss_bad": 1.0}}}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_are_those_written_by_hand(name):
    before, after = NETWORKS[name]
    speed = {"speed": {"lognormal": [1000.0, 0.3]}}, {"speed": {"lognormal": [1000.0 * S, 0.3]}}
    world = scaled(star_with(network=before, compute=speed[0]), FACTORS)
    assert world == star_with(network=after, compute=speed[1])
    assert scaled(world, dict.fromkeys(INPUTS, 1.0)) == world


DEVICES = {
    "fixed costs": (
        {
            "speed": 500.0,
            "overhead": {"lognormal": [0.01, 0.5]},
            "coordinator": {"reply": {"exponential": 0.002}, "number": 1e-6},
        },
        {
            "speed": 500.0 * S,
            "overhead": {"lognormal": [0.01 * C, 0.5]},
            "coordinator": {"reply": {"exponential": 0.002 * C}, "number": 1e-6 * C},
        },
    ),
    "time": ({"time": {"exponential": 0.002}}, {"time": {"exponential": 0.002 * (1 / S)}}),
    "infinite": ({"speed": "inf"}, {"speed": "inf"}),
    "spells": (
        {"speed": 500.0, "spells": {"factor": 4, "every": 6.0, "lasting": 1.0}},
        {"speed": 500.0 * S, "spells": {"factor": 4, "every": 6.0, "lasting": 1.0}},
    ),
}


@pytest.mark.parametrize("name", DEVICES)
def test_devices_are_those_written_by_hand(name):
    before, after = DEVICES[name]
    world = scaled(star_with(compute=before), {"speed": S, "overhead": C})
    assert world == star_with(compute=after)


def measured(folder, unit, kbit, devices, slow):
    """A star whose latencies, bandwidths and speeds come from files, in these units."""
    np.savez(folder / "m.npz", rtt_ms=np.array([[0, 20, 30], [20, 0, 40], [30, 40, 0]], float))
    np.savez(folder / "b.npz", one=np.array([[0.0, 900.0], [0.1, 400.0]]))
    np.savez(folder / "s.npz", one=np.array([5.0, 8.0]), two=np.array([2.0, 3.0]))
    matrix = {"file": str(folder / "m.npz"), **unit}
    rates = {"trace": str(folder / "b.npz"), "unit": kbit}
    network = {"latency_matrix": matrix, "link": {"bandwidth": rates}}
    speeds = {"speed": {"trace": str(folder / "s.npz"), **devices}}
    own = {"network": network, "compute": speeds, "stop": {"rounds": slow}}
    return desim.load({**star(problem={"agents": 2}), **own})


UNITS = {
    "durations": ({"unit": "2 ms"}, {"unit": f"{0.002 / S!r} s"}),
    "rates": ({"unit": "10 /s"}, {"unit": f"{10.0 * S!r} /s"}),
    "scores": ({"median": 100.0}, {"median": 100.0 * S}),
}


@pytest.mark.parametrize("name", UNITS)
def test_measurements_are_scaled_by_their_units(name, tmp_path):
    before, after = UNITS[name]
    written = f"{0.001 * F!r} s"
    for unit in ({}, {"unit": "ms"}):
        world = scaled(measured(tmp_path, unit, "kbit/s", before, 2), FACTORS)
        own = measured(tmp_path, {"unit": written}, f"{1000.0 * B!r} bit/s", after, 2)
        assert world == own
    assert desim.run(world).events.equals(desim.run(own).events)
    assert moved(world) == ("latency", "bandwidth", "speed")


def test_a_factor_that_changes_nothing_is_no_input():
    ideal = {"link": {"latency": 0.0, "bandwidth": "inf"}}
    assert moved(star_with(network=ideal)) == ("speed",)
    assert moved(star_with(network="wifi")) == INPUTS[:4]
    behind = {"link": ideal["link"], "behind": {"sites": 2, "uplink": {"bandwidth": 1e6}}}
    costs = {"speed": "inf", "overhead": 0.01}
    assert moved(star_with(network=behind, compute=costs)) == ("behind", "overhead")
    assert moved(star_with(network=ideal, compute={"speed": "inf"})) == ()
    assert moved(desim.load(CASES["gd-budget"])) == ("speed",)


TCP = {"connection": "new", "header": 40}
CARRIED = {
    "ideal": ("ideal", "ideal"),
    "tcp": ({"tcp": {}}, {"tcp": TCP}),
    "cubic": ({"tcp": {"congestion": "cubic"}}, {"tcp": {**TCP, "congestion": "cubic"}}),
    "reno": ({"tcp": {"congestion": "reno"}}, {"tcp": {**TCP, "congestion": "reno"}}),
}


def check_transports(module):
    """Every link by another transport, which keeps what the scenario says of its own."""
    network = {"link": {"latency": 0.02}, "uplink": {"transport": {"tcp": TCP}},
               "links": [{"sender": 1, "transport": "tcp"}]}  # fmt: skip
    for word, (plain, own) in CARRIED.items():
        after = {"link": {"latency": 0.02, "transport": plain}, "uplink": {"transport": own},
                 "links": [{"sender": 1, "transport": plain}]}  # fmt: skip
        assert module.transported(star_with(network=network), word) == star_with(network=after)


def test_transports_are_those_written_by_hand():
    check_transports(module)
    with pytest.raises(AssertionError):
        check_transports(mutant(module, '**own, "congestion"', '"congestion"'))


def check_single_links(module):
    before, after = NETWORKS["sides and single links"]
    speed = {"speed": 1000.0}, {"speed": 1000.0 * S}
    world = module.scaled(star_with(network=before, compute=speed[0]), FACTORS)
    assert world == star_with(network=after, compute=speed[1])


WRONG = {
    "single links stay": ("_link(one, factors) for one", "one for one"),
    "the way up stays": ('"uplink": _link(network.uplink, factors)', '"uplink": network.uplink'),
    "losses grow beyond": ("min(1.0, law * factor)", "2 * law * factor"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_scaling_is_noticed(name):
    check_single_links(module)
    with pytest.raises((AssertionError, InputError)):
        check_single_links(mutant(module, *WRONG[name]))


def test_another_transport_is_that_of_every_link():
    links = [{"sender": 0, "transport": "tcp"}, {"sender": 1, "latency": 0.1, "transport": "tcp"}]
    network = {"link": {"latency": 0.02}, "links": links, "uplink": {"transport": "tcp"}}
    for word in ("tcp", "ideal"):
        made = transported(star_with(network=network), word).network
        sides = [made.along(side).transport for side in ("link", "uplink", "downlink")]
        own = [one.transport for one in made.links if one.transport is not None]
        assert {one.tcp is not None for one in (*sides, *own)} == {word == "tcp"}
