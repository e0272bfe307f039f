"""What a trace carries, against exact rational numbers: rounding makes no message endless."""

from fractions import Fraction

import numpy as np
import pytest
from cases import merged, star
from mutant import mutant
from test_engines import differences

import desim
from desim.errors import InputError
from desim.network.conditions.devices import rate_traces
from desim.network.timeline import link_laws

EPS = 2.0**-52


def samples_of(times, rates):
    """Samples (3, k + 1) as `rate_traces` makes them."""
    samples = np.zeros((3, len(rates) + 1))
    samples[0], samples[1, :-1] = times, rates
    samples[2, 1:] = np.cumsum(samples[1, :-1] * np.diff(samples[0]))
    return samples


def carried(samples, loops, until):
    """The bits that leave from the trace's first sample until a time, exactly."""
    time, rate = ([Fraction(x) for x in row.tolist()] for row in samples[:2])
    whole = sum(r * (b - a) for r, a, b in zip(rate, time, time[1:], strict=False))
    laps = until // time[-1] if loops else 0
    phase, bits = until - laps * time[-1], laps * whole
    for r, a, b in zip(rate, time, time[1:], strict=False):
        bits += r * max(min(phase, b) - a, 0)
    return bits + rate[-2] * max(phase - time[-1], 0)


def fault(samples, loops, begin, bits, module=link_laws):
    """What is wrong with how long `bits` take, or nothing."""
    last = samples.shape[1] - 1
    found = float(module.fluid(samples, 0, last, loops, begin, bits))
    if not 0.0 <= found < np.inf:
        return f"takes {found}"
    at, wanted = Fraction(begin), Fraction(bits)
    before = carried(samples, loops, at)
    slack = 8.0 * EPS * (begin + found + samples[0, -1])
    near = Fraction(slack) + Fraction(found) / 2**40
    rounded = Fraction(32.0 * EPS * (bits + samples[2, -1]) + samples[1].max() * slack)
    if abs(carried(samples, loops, at + Fraction(found)) - before - wanted) > rounded:
        return f"takes {found}, in which other bits leave"
    ends = [carried(samples, loops, max(at + Fraction(found) + d, at)) for d in (-near, near)]
    if found > near and ends[0] == ends[1]:
        return f"takes {found}, in the middle of an outage"
    return ""


def situations(number=1500, seed=3):
    """Traces with outages at any place, and messages that fill whole laps, or nearly."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        pieces, loops = int(rng.integers(1, 6)), bool(rng.random() < 0.8)
        rates = 10.0 ** rng.uniform(-3, 6) * rng.uniform(0.1, 9.0, pieces)
        rates *= rng.random(pieces) < 0.6
        if not rates.any() or (not loops and rates[-1] == 0.0):
            rates[-1 if not loops else 0] = 1.0
        steps = 10.0 ** rng.uniform(-3, 3) * rng.choice([0.1, 0.2, 0.3, 1.0, 2.0], pieces)
        samples = samples_of(np.concatenate([[0.0], np.cumsum(steps)]), rates)
        whole, period = samples[2, -1], samples[0, -1]
        laps = float(rng.integers(1, 200_000))
        bits = [laps * whole, np.nextafter(laps * whole, 0.0), whole * rng.uniform(0.0, 4.0), whole]
        begins = [0.0, laps * period, period * rng.uniform(0.0, 9.0), samples[0, pieces // 2]]
        yield samples, loops, float(rng.choice(begins)), float(rng.choice(bits))


def faults(module=link_laws):
    return [text for one in situations() if (text := fault(*one, module))]


def test_all_bits_leave_when_exact_arithmetic_says():
    assert faults() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "found"),
    [
        ("min(goal - laps * whole, whole)", "goal - laps * whole", "takes inf"),
        ("if goal <= 0.0:", "if goal <= -1e300:", "in the middle of an outage"),
        ("(goal - sent[k]) / rate[k]", "1.001 * (goal - sent[k]) / rate[k]", "other bits leave"),
    ],
)
def test_other_roundings_are_noticed(right, wrong, found):
    assert any(found in text for text in faults(mutant(link_laws, right, wrong)))


def test_a_lap_that_is_full_by_an_ulp_is_full():
    samples = samples_of([0.0, 0.002, 0.004], [1.0, 0.0])
    taken = [link_laws.fluid(samples, 0, 2, True, 0.0, bits) for bits in (191.999, 192.0)]
    assert np.allclose(taken, [383.997, 383.998], rtol=0, atol=1e-9)
    assert link_laws.fluid(samples, 0, 2, True, np.inf, 1.0) == np.inf


@pytest.mark.parametrize("policy", ["all", {"deadline": "1000 s"}, {"quorum": 6}])
def test_a_message_through_slots_arrives_on_every_engine(policy, tmp_path):
    """1 bit/s for 2 ms, nothing for 2 ms: 192 bits need 96,000 laps but for the last outage."""
    path = tmp_path / "slots.csv"
    path.write_text("time,rate\n0,1\n0.002,0\n")
    made = star(policy=policy, compute={"speed": "inf"}, stop={"rounds": 2})
    made["problem"]["data"]["dim"] = 3
    slots = {"trace": str(path), "unit": "bit/s"}
    made["network"] = {"link": {"latency": "0 s", "bandwidth": slots}}
    runs = [desim.run(made, overrides={"engine": e}) for e in ("compiled", "cohort", "agents")]
    events = runs[0].events
    assert (events.kind == "deliver").sum() == 24
    assert np.allclose(events[events.kind == "deliver"].seconds, 383.998, atol=0.003)
    for other in runs[1:]:
        assert differences(runs[0], other) == []


ENGINES = ("compiled", "cohort", "agents")
NEVER = [
    (
        {"network": {"link": {"bandwidth": {"normal": ["1 bit/s", "1 Mbit/s"]}}}},
        "nothing arrives on",
    ),
    ({"compute": {"speed": {"normal": ["1 /s", "100 /s"]}}}, "nothing is ever done by agent"),
]


@pytest.mark.parametrize(("changes", "message"), NEVER)
def test_what_never_ends_is_said_under_a_deadline(changes, message):
    made = merged(star(policy={"deadline": "1 s"}, stop={"rounds": 3}), {})
    made.pop("compute")
    for key, section in changes.items():
        made[key] = section
    runs = [desim.run(made, overrides={"engine": engine}) for engine in ENGINES]
    told = [[w for w in run.manifest["warnings"] if message in w] for run in runs]
    assert told[0] == told[1] == told[2]
    assert len(told[0]) == 1
    assert "drawn as 0 or next to it" in told[0][0]


@pytest.mark.parametrize(
    "table", [[[0, 1e308], [1, 1e308]], [[-1e308, 1], [0.7e308, 1]], [[0, 1e-300], [1e-100, 0]]]
)
def test_traces_that_no_number_holds_are_refused(table, tmp_path):
    path = tmp_path / "wild.npz"
    np.savez(path, wild=np.array(table))
    keys = {"loops": True, "shuffled": False, "shifted": False, "where": "here"}
    with pytest.raises(InputError, match=r"here: found .* allowed: (what adds up|numbers up to)"):
        rate_traces(path, (), 1e3 if table[0][1] > 1 else 1.0, **keys)
