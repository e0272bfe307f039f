"""Compiled rounds whose messages are cut, noised or coded, as the cohort engine has them."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
from cases import SCAFFOLD, star
from mutant import mutant
from test_compiled_rounds import FORMULAS, compared

import desim
from desim.engine.compiled import rounds
from desim.engine.compiled import star as star_compiled
from desim.errors import InputError
from desim.methods import fedavg, fedbuff, scaffold
from desim.network.conditions.codec import Codec
from desim.privacy.ledger.ledger import Mechanism
from desim.problem.kernels import codecs
from desim.scenario import build
from desim.scenario.build import check

CHANGES = {
    "top": {"codec": {"top-k": 2, "error_feedback": True}},
    "random": {"codec": {"random-k": 0.5, "numbers": "float16", "error_feedback": "ef21"}},
    "levels": {"codec": {"quantise": {"bits": 3}, "error_feedback": False}},
    "down": {
        "codec": {"top-k": 3, "error_feedback": "ef21", "downlink": {"quantise": {"bits": 4}}}
    },
    "random-down": {
        "codec": {"quantise": {"bits": 4}, "error_feedback": True, "downlink": {"random-k": 2}}
    },
    "half": {"codec": {"top-k": 2, "downlink": "float16"}},
    "plain": {},
    "single": {"codec": "float32"},
}
WAITS = {
    "all": {"policy": "all"},
    "each": {"policy": "each"},
    "buffer": {"policy": {"buffer": 2}},
    "carried": {"policy": {"deadline": "90 ms", "late": "carry"}},
    "some": {"participation": {"bernoulli": 0.5}, "policy": "all"},
}
NOISE = {"privacy": {"noise": {"kind": "gaussian", "sigma": 0.1}}}
CLIPPED = {"name": "fedbuff", "clip": 0.05}


def changed(name, wait):
    """What is not as in FedAvg's scenario."""
    noise = NOISE if name in ("plain", "single", "levels") else {}
    return {**CHANGES[name], **WAITS[wait], **noise}


def algorithm_of(name):
    return CLIPPED if name in ("plain", "single", "levels") else {"name": "fedprox"}


@pytest.mark.thin(4)
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("name", CHANGES)
def test_coded_messages_agree_however_long_is_waited(name, wait, monkeypatch):
    assert compared(monkeypatch, algorithm_of(name), changed(name, wait)) == []


def test_an_optimiser_goes_with_a_codec(monkeypatch):
    assert compared(monkeypatch, FORMULAS["adam"], changed("half", "each")) == []


def broken_rounds(monkeypatch, right, wrong):
    """Compiled rounds, as plain Python, whose messages are not what they should be."""
    if right in inspect.getsource(star_compiled):
        return mutant(star_compiled, right, wrong).play
    twin = mutant(rounds, "IDLE = 1 << 14", "IDLE = 1 << 13")
    if right in inspect.getsource(codecs):
        twin.codecs = mutant(codecs, right, wrong)
    else:
        twin = mutant(rounds, right, wrong)
    monkeypatch.setattr(star_compiled, "advance", twin.advance)
    return star_compiled.play


@pytest.mark.parametrize(
    ("name", "wait", "right", "wrong"),
    [
        ("plain", "each", "clip_row(row, clip)", "pass"),
        ("plain", "each", "counter(round_, 0), scale[i]", "counter(round_, 1), scale[i]"),
        ("single", "all", "scale[i], row", "0.5 * scale[i], row"),
        ("plain", "all", "most, *noise, seed", "most, seed + seed, noise[1], seed"),
        ("top", "each", "row[j] += memory[i, j]\n", "pass\n"),
        ("top", "carried", "memory[i, j] -= row[j]", "memory[i, j] = row[j]"),
        ("random", "each", "memory[i, j] += row[j]\n", "memory[i, j] = row[j]\n"),
        ("random", "buffer", "address(CODEC, i, -1), counter", "address(CODEC, -1, i), counter"),
        ("levels", "some", "coder, seed, address(CODEC, i", "coder, seed + 1, address(CODEC, i"),
        ("levels", "each", 'codec.memory == "none")', 'codec.memory != "none")'),
        ("half", "each", "there = coder if down.lossy else down.bits(1)", "there = 64"),
        ("down", "all", "same = whole and", "same = whole or"),
        ("down", "each", "FIRST] + r, heard", "FIRST] + 1, heard"),
        ("random-down", "all", "reference[i, j] += row[j]", "reference[i, j] = row[j]"),
        ("random-down", "each", "address(CODEC, -1, i)", "address(CODEC, i, -1)"),
    ],
)  # fmt: skip
def test_wrong_coded_messages_are_noticed(name, wait, right, wrong, monkeypatch):
    broken = broken_rounds(monkeypatch, right, wrong)
    assert compared(monkeypatch, algorithm_of(name), changed(name, wait), broken)


def test_a_clip_of_zero_leaves_nothing_of_a_reply(monkeypatch):
    """As it may be in a method of one's own."""
    rounds = fedbuff.FedBuff.compiled
    monkeypatch.setattr(fedbuff.FedBuff, "compiled", lambda own: replace(rounds(own), clip=0.0))
    monkeypatch.setattr(fedbuff, "clipped_rows", lambda change, most: 0.0 * change)
    assert compared(monkeypatch, CLIPPED, WAITS["each"]) == []
    wrong = mutant(star_compiled, "np.inf if clip is None else clip", "clip or np.inf").play
    assert compared(monkeypatch, CLIPPED, WAITS["each"], wrong)


def test_noise_that_is_not_gaussian_is_drawn_in_python(monkeypatch):
    """Else a method of one's own would be charged for other noise than it has."""
    rounds = fedbuff.FedBuff.compiled

    def laplace(own):
        plain = rounds(own)
        return replace(plain, terms=replace(plain.terms, mechanism=Mechanism.LAPLACE))

    noised = star(algorithm={**CLIPPED, "rho": None}, policy="all", **NOISE)
    del noised["algorithm"]["rho"]
    assert check(desim.load(noised)).engine == "compiled"
    monkeypatch.setattr(fedbuff.FedBuff, "compiled", laplace)
    with pytest.raises(InputError, match="noise that is laplace is drawn in Python"):
        check(desim.load({**noised, "engine": "compiled"}))
    wrong = mutant(build, "not rounds.local.noisy and", "rounds.local.noisy and")
    assert wrong.check(desim.load({**noised, "engine": "compiled"})).engine == "compiled"


def test_top_k_keeps_what_numpy_would_sort_to_the_end():
    """Of numbers that are alike the first, and of those that are none all before any other."""
    rng, unlike = np.random.default_rng(8), 0
    wrong = mutant(codecs, "equal and room <= 0", "equal and room < 0")
    for n in range(1, 200):
        x = np.round(rng.normal(size=(1, 1 + n % 40)), 1)
        x[rng.uniform(size=x.shape) < 0.1] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0])
        k = int(rng.integers(1, x.size + 1))
        size = np.where(np.isnan(x), np.inf, np.abs(x))[0]
        kept = np.argsort(-size, kind="stable")[:k]
        wanted = np.zeros_like(x)
        wanted[0, kept] = x[0, kept]
        coded = Codec("top-k", k, "float64"), 3, x, False
        assert np.array_equal(codecs.encoded(*coded, agent=0), wanted, equal_nan=True)
        unlike += not np.array_equal(wrong.encoded(*coded, agent=0), wanted, equal_nan=True)
    assert unlike


def test_messages_of_two_parts_are_coded_by_the_cohort_engine(monkeypatch):
    monkeypatch.setattr(scaffold.Scaffold, "codecs", fedavg.FedAvg.codecs)
    coded = star(algorithm=SCAFFOLD, codec={"top-k": 1})
    assert check(desim.load(coded)).engine == "cohort"
    with pytest.raises(InputError, match="messages of two parts are coded in Python"):
        check(desim.load({**coded, "engine": "compiled"}))
