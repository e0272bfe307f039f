"""Runs with a codec: naive twins of both ends, engines, bytes, what is kept, what is refused."""

from functools import partial
from types import SimpleNamespace

import naive.choco_sgd
import naive.codecs
import naive.coded_star
import numpy as np
import pytest
from cases import DROP, FEDAVG, NETWORK, SCAFFOLD, graph, merged, star
from mutant import mutant
from naive.losses import slope
from test_against_naive import EDGES, SEED, TOLERANCE, Rows, gap
from test_checkpoints import eager, goes_on  # noqa: F401 (a fixture)

import desim
from desim.engine import play
from desim.engine.compiled import star as star_compiled
from desim.engine.releasing import Releasing
from desim.errors import InputError, RunError
from desim.methods.shared.averages import consensus_step
from desim.network.conditions.codec import Codec, Codecs
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.scenario.build import build
from desim.scenario.load import load

HOW = {
    "top": ("top-k", 2, "float32"),
    "random": ("random-k", 1, "float16"),
    "levels": ("quantise", 4, None),
}
WRITTEN = {
    "top": {"top-k": 2},
    "random": {"random-k": 1, "numbers": "float16"},
    "levels": {"quantise": {"bits": 4}},
}
FEEDBACK = {"none": False, "error": True, "known": "ef21"}


def through(how, contract, i, t, row, agent=None, peer=-1):
    """What a receiver reads of a row of agent i in round t, by the packing twin."""
    place = {"agent": i if agent is None else agent, "peer": peer, "round": t, "step": 1}
    u = keys.uniforms(SEED, Stream.CODEC, size=len(row), **place)
    kept = keys.subset(SEED, Stream.CODEC, len(row), min(how[1], len(row)), **place)
    return naive.codecs.through(row, how, contract=contract, u=u, kept=kept.tolist())[0]


def gradient_of(rows, i, x, *_):
    """Gradient of agent i's mean logistic loss and its part of (1/2)|x|^2."""
    A, b = rows.A[i], rows.b[i]
    u = A @ x
    slopes = np.array([slope("logistic", one, label) for one, label in zip(u, b, strict=True)])
    return A.T @ slopes / len(b) + x / rows.agents


def scenario(folder, rows, algorithm, codec, engine, **more):
    """A scenario on these rows."""
    return {
        "seed": SEED,
        "engine": engine,
        "problem": {**rows.problem(folder), "loss": "logistic", "regularizer": {"l2": 1.0}},
        "algorithm": {**algorithm, "init": rows.init(folder)},
        "codec": codec,
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": 8},
        **more,
    }


def star_gap(folder, name, memory, twin=naive.coded_star, engine="cohort", down=None):
    """Largest difference from the twin of FedAvg with one full gradient step."""
    rows, how, step = Rows(2, "logistic"), HOW[name], 0.4
    codec = {**WRITTEN[name], "error_feedback": FEEDBACK[memory]}
    codec |= {"downlink": WRITTEN[down]} if down else {}
    algorithm = {"name": "fedavg", "local": {"epochs": 1, "step": step}}
    run = desim.run(scenario(folder, rows, algorithm, codec, engine))
    told = None if down is None else lambda i, t, x: through(HOW[down], True, i, t, x, -1, i)
    wanted = twin.descend(
        partial(gradient_of, rows), rows.x0, 8, partial(through, how, memory != "none"), told,
        step=step, memory=memory,
    )  # fmt: skip
    return gap(run.model, wanted)


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", HOW)
@pytest.mark.parametrize("memory", FEEDBACK)
def test_a_star_is_its_twin(tmp_path, name, memory):
    assert star_gap(tmp_path, name, memory) < TOLERANCE


@pytest.mark.parametrize(("name", "down"), [("top", "levels"), ("levels", "random")])
def test_both_ways_coded_are_their_twin(tmp_path, name, down):
    assert star_gap(tmp_path, name, "error", engine="agents", down=down) < TOLERANCE


@pytest.mark.parametrize(
    ("memory", "right", "wrong"),
    [
        ("error", "up(i, t, change + e[i])", "up(i, t, change)"),
        ("error", "change + e[i] - heard", "change - heard"),
        ("known", "up(i, t, change - h[i])", "up(i, t, change)"),
        ("known", "h[i] + sent, there[i]", "h[i], there[i]"),
        ("error", "w[i] + down(i, t, x[-1] - w[i])", "down(i, t, x[-1])"),
        ("none", "total / n", "total"),
    ],
)
def test_another_twin_of_a_star_is_noticed(tmp_path, memory, right, wrong):
    twin = mutant(naive.coded_star, right, wrong)
    down = "levels" if "down" in right else None
    assert (
        star_gap(tmp_path, "top" if memory != "none" else "levels", memory, twin, down=down) > 1e-3
    )


def choco_gap(folder, name, twin=naive.choco_sgd, engine="cohort", alpha=0.2):
    """Largest difference of the agents' models from the twin's."""
    rows, gamma = Rows(3, "logistic"), 0.3
    algorithm = {"name": "choco-sgd", "alpha": alpha, "gamma": gamma}
    run = desim.run(
        scenario(
            folder, rows, algorithm, WRITTEN[name], engine,
            network={**NETWORK, "topology": {"edges": EDGES}},
        )
    )  # fmt: skip
    W = np.zeros((4, 4))
    degree = np.bincount(np.ravel(EDGES))
    for i, j in EDGES:
        W[i, j] = W[j, i] = 1.0 / (1 + max(degree[i], degree[j]))
    W += np.diag(1.0 - W.sum(axis=1))
    wanted = twin.choco_sgd(
        partial(gradient_of, rows), rows.x0, W, 8, partial(through, HOW[name], True),
        alpha=alpha, gamma=gamma,
    )  # fmt: skip
    return gap(run.iterates, wanted)


@pytest.mark.parametrize(("name", "alpha"), [("top", 0.2), ("random", 0.2), ("levels", 0)])
@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_choco_is_its_twin(tmp_path, name, alpha, engine):
    assert choco_gap(tmp_path, name, engine=engine, alpha=alpha) < TOLERANCE


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("half[j] - xhat[j][j]", "half[j]"),
        ("xhat[i][j] + q[j]", "q[j]"),
        ("(xhat[i][j] - xhat[i][i])", "(xhat[i][j] - half[i])"),
        ("new = half.copy()", "new = x[-1].copy()"),
        ("new[i] + gamma * W", "new[i] + W"),
    ],
)
def test_another_choco_is_noticed(tmp_path, right, wrong):
    assert choco_gap(tmp_path, "top", mutant(naive.choco_sgd, right, wrong)) > 1e-3


def test_gamma_of_the_theorem():
    """Three agents in a ring have rho = beta = 1: delta / (16 + 1 + 4 + 2 - 8 delta)."""
    W = np.full((3, 3), 1.0 / 3.0)
    assert np.isclose(consensus_step(W, 1.0), 1.0 / 15.0)
    assert np.isclose(consensus_step(W, 0.5), 0.5 / 19.0)
    ring = graph(algorithm={"name": "choco-sgd", "alpha": 0}, network={"topology": "ring"})
    made = build(load({**ring, "codec": {"top-k": 1}}))
    assert made.method.gamma == consensus_step(made.method.averages.W, 0.25)


def test_models_are_coded_as_differences_and_the_limit_is_exact():
    """Fed-PLT sends models: top-k of differences to what the coordinator has loses nothing."""
    for codec in ({"top-k": 2}, {"quantise": {"bits": 4}}):
        case = {**star(stop={"rounds": 90}), "codec": codec, "log": "rounds"}
        run = desim.run({**case, "engine": "cohort"})
        assert run.metrics.value[run.metrics.metric == "error"].iloc[-1] < 1e-10


def test_choco_keeps_the_mean_and_finds_it():
    """CHOCO-Gossip: the mean of all models stays, and every agent comes to it linearly."""
    case = graph(
        algorithm={"name": "choco-sgd", "alpha": 0, "gamma": 0.3, "init": {"normal": 1.0}},
        stop={"rounds": 150},
    )
    del case["privacy"]
    run = desim.run({**case, "codec": {"random-k": 2}})
    means = run.iterates.mean(axis=1)
    assert np.allclose(means, means[0], atol=1e-12)
    apart = np.abs(run.iterates - means[:, None]).max(axis=(1, 2))
    assert apart[150] < 1e-6 < 1e-2 < apart[0]
    assert apart[150] / apart[100] < 0.2
    assert (run.events.kind != "compute").all()


BYTES = [
    (star(algorithm=FEDAVG), {"top-k": 2}, 9, 40),  # 2 (32 + 3) = 70 bits; 5 numbers down
    (star(algorithm=FEDAVG), "float16", 10, 10),
    (star(algorithm=FEDAVG), {"quantise": {"bits": 3}, "downlink": "float32"}, 6, 20),
    (star(), {"random-k": 0.2, "indices": "seeded"}, 4, 40),
    (star(algorithm=SCAFFOLD), "float32", 40, 40),  # two vectors
]


@pytest.mark.parametrize(("case", "codec", "up", "down"), BYTES)
def test_messages_take_as_many_bytes_as_they_need(case, codec, up, down):
    events = desim.run({**case, "codec": codec, "stop": {"rounds": 2}}).events
    sends = events[events.kind == "send"]
    assert set(sends.bytes[sends.agent >= 0]) == {up}
    assert set(sends.bytes[sends.agent < 0]) == {down}


CODED = {
    "errors": {**star(algorithm=FEDAVG, participation={"uniform": 4}), "codec": {"top-k": 1}},
    "both ways": {
        **star(algorithm=FEDAVG, policy={"buffer": 2}),
        "codec": {"random-k": 2, "downlink": {"quantise": {"bits": 5}}},
    },
    "models": {**star(policy={"deadline": "90 ms"}), "codec": {"quantise": {"bits": 4}}},
    "changes known": {
        **star(algorithm=FEDAVG, policy={"quorum": 3, "late": "carry"}),
        "codec": {"top-k": 2, "error_feedback": "ef21"},
    },
    "rounded": {**star(algorithm=FEDAVG), "codec": "float16"},
    "choco": {
        **graph(algorithm={"name": "choco-sgd", "alpha": 0.1, "gamma": 0.3}),
        "codec": {"quantise": {"bits": 3}},
    },
}


def same(one, other):
    """Whether two runs have the same tables and arrays."""
    tables = ("events", "metrics", "releases")
    equal = all(getattr(one, name).equals(getattr(other, name)) for name in tables)
    return equal and all(np.array_equal(one.state[name], other.state[name]) for name in one.state)


@pytest.mark.parametrize("name", CODED)
def test_engines_and_batches_agree(name, monkeypatch, request):
    first = desim.run({**CODED[name], "engine": "cohort"})
    assert same(first, desim.run({**CODED[name], "engine": "agents"}))
    monkeypatch.setattr("desim.scenario.build.SOME", 1)
    monkeypatch.setattr("desim.scenario.build.NUMBERS", 1)
    if name == "both ways":  # it has all that the others have
        request.getfixturevalue("machine_code")
    assert same(first, desim.run(CODED[name]))


@pytest.mark.parametrize("name", ["errors", "both ways", "changes known"])
def test_a_run_goes_on_with_what_is_owed_and_known(name, tmp_path):
    case = merged({"name": "case", **CODED[name]}, {"engine": "cohort", "stop": {"rounds": 10}})
    shown, rounds, again = goes_on(case, tmp_path / "run")
    assert rounds == 10
    assert again <= rounds - shown + 2


def test_compiled_rounds_go_on_with_what_agents_were_sent(tmp_path, monkeypatch):
    monkeypatch.setenv("DESIM_COMPILE", "never")
    codec = {"quantise": {"bits": 4}, "error_feedback": True, "downlink": {"random-k": 2}}
    changes = {"algorithm": FEDAVG, "codec": codec, "policy": {"buffer": 2}, "stop": {"rounds": 9}}
    case = star(name="case", engine="compiled", **changes)
    shown, rounds, again = goes_on(case, tmp_path / "run")
    assert (rounds, again <= rounds - shown + 3) == (9, True)
    broken = mutant(star_compiled, "(reference,) if down.lossy", "(0.0 * reference,) if down.lossy")
    monkeypatch.setitem(play.ENGINES, ("coordinator", "compiled"), broken.play)
    with pytest.raises(AssertionError):
        goes_on(case, tmp_path / "other")


@pytest.mark.parametrize("name", ["errors", "choco"])
def test_another_network_needs_no_other_training(name):
    case = {"name": "case", **CODED[name]}
    case = merged(case, {"observe": {"iterates": True}})
    network = {"link": {"latency": "5 ms", "bandwidth": "50 kbit/s"}}
    given = {**case["network"], "link": network["link"]}
    trained = desim.run({**case, "network": given})
    retimed = desim.retime(desim.run(case), network=network)
    for table in ("events", "metrics"):
        assert getattr(retimed, table).equals(getattr(trained, table))
    assert np.array_equal(retimed.iterates, trained.iterates)


def test_noise_comes_before_coding():
    """The ledger is that of the run without a codec, whatever the codec does to the messages."""
    for case in (
        graph(algorithm={"name": "choco-sgd", "alpha": 0.1, "gamma": 0.3}),
        star(
            algorithm={**FEDAVG, "local": {"solver": "noisy", "epochs": 2, "tau": 0.1}},
            problem={"clip": 1.0},
        ),
    ):
        whole, coded = (desim.run({**case, "codec": codec}) for codec in ("none", {"top-k": 1}))
        columns = ["round", "agent", "mechanism", "sensitivity", "scale"]
        tables = [
            run.releases[columns].sort_values(columns[:2]).reset_index(drop=True)
            for run in (whole, coded)
        ]
        assert len(tables[0])
        assert tables[0].equals(tables[1])


def test_no_theorem_speaks_of_coded_messages():
    noisy = {"name": "fed-plt", "rho": 0.5, "local": {"solver": "noisy", "epochs": 3, "tau": 0.05}}
    case = star(algorithm=noisy, problem={"clip": 1.0})
    assert build(load(case)).method.claimed() is not None
    assert build(load({**case, "codec": "float32"})).method.claimed() is None


def test_an_agent_that_forgets_begins_with_no_errors():
    churn = {"up": {"exponential": "2 s"}, "down": {"exponential": "0.2 s"}, "memory": "lost"}
    case = star(algorithm=FEDAVG, policy={"deadline": "0.4 s"}, churn=churn, stop={"rounds": 30})
    kept = merged(case, {"churn": {"memory": "kept"}})
    one, other = (desim.run({**each, "codec": {"top-k": 1}}) for each in (case, kept))
    assert not np.array_equal(one.state["codec_memory"], other.state["codec_memory"])


CHURN = {"up": {"exponential": "2 s"}, "down": {"exponential": "0.2 s"}, "memory": "lost"}
REFUSED = [
    (star(algorithm=SCAFFOLD), {"top-k": 1}, "found top-k, but what its agents keep moves"),
    (star(algorithm={"name": "tamuna", "p": 0.3}), "float32", "a codec of its own, algorithm.s"),
    (graph(), {"quantise": {"bits": 4}}, "the duals of a link"),
    (graph(algorithm={"name": "dsgd", "alpha": 0.1}), {"top-k": 1}, "choco-sgd keeps"),
    (star(), {"top-k": 1, "downlink": {"top-k": 1}}, "found top-k, but differences of what it"),
    (star(algorithm=FEDAVG, policy={"deadline": "1 s"}), {"downlink": {"top-k": 1}}, "may be void"),
    (
        star(algorithm=FEDAVG, policy={"adaptive": {"mad": 1}}),
        {"downlink": {"top-k": 1}},
        "with policy adaptive a call may be void",
    ),
    (
        star(algorithm=FEDAVG, policy={"buffer": 2, "late": "discard"}),
        {"downlink": {"random-k": 1}},
        "with policy buffer a call may be void",
    ),
    (
        star(algorithm=FEDAVG, policy={"deadline": "1 s", "late": "carry"}, network=DROP),
        {"downlink": {"quantise": {"bits": 4}}},
        "found quantise, but with on_loss: drop an agent may miss a call for good",
    ),
    (star(churn=CHURN, policy={"deadline": "1 s"}), {"top-k": 1}, "has lost its memory"),
    (
        graph(algorithm={"name": "choco-sgd", "alpha": 0.1}, network=DROP),
        {"top-k": 1},
        "found drop, but with policy all",
    ),
    (
        star(algorithm={"name": "fed-plt", "rho": 0.5, "send": "increments"}),
        {"top-k": 1},
        "found increments with a lossy codec",
    ),
    (
        graph(algorithm={"name": "choco-sgd", "alpha": 0.1}, privacy={"budget": 9}),
        {"top-k": 1},
        "found retire, but the others go on",
    ),
    (star(algorithm=FEDAVG), {"top-k": "0 %"}, "allowed: a share of the coordinates"),
    (star(algorithm=FEDAVG), {"topk": 1}, "did you mean 'top-k'"),
    (
        star(algorithm=FEDAVG),
        {"quantise": {"bits": 1}},
        "found 1; allowed: a whole number, 2 to 32",
    ),
    (star(algorithm=FEDAVG), {"quantise": {"bits": 4}, "numbers": "float16"}, "with top-k and"),
    (star(algorithm=FEDAVG), {"uplink": "none", "numbers": "float16"}, "inside it"),
]


@pytest.mark.parametrize(("case", "codec", "words"), REFUSED)
def test_what_does_not_fit_is_refused_in_words(case, codec, words):
    with pytest.raises(InputError) as error:
        desim.run({**case, "codec": codec})
    assert words in str(error.value)


def test_a_message_that_is_not_coded_is_refused(tmp_path):
    plugin = tmp_path / "mean.py"
    plugin.write_text(
        "from desim.method import LOSSY, Method, Strict\n"
        "class Mean(Method):\n"
        "    name, kind, summary, paper, Parameters = 'mean', 'graph', 'a', 'b', Strict\n"
        "    codecs = LOSSY\n"
        "    def agents(self, us):\n"
        "        us.x = self.settings.initial('x0')[us.who]\n"
        "        for k in us.rounds():\n"
        "            us.send(us.x)\n"
        "            yield us.gather()\n"
    )
    case = {**graph(algorithm={"name": "mean"}), "plugins": [str(plugin)], "codec": {"top-k": 1}}
    del case["privacy"]
    with pytest.raises(RunError, match=r"not coded; allowed: us\.coded\(value\)"):
        desim.run(case)


def test_two_values_of_a_round_have_dithers_of_their_own():
    class Us(Releasing):
        who, round = np.array([0, 1]), np.array([3, 3])

    us, value = Us(), np.linspace(-1.0, 1.0, 14).reshape(2, 7)
    codecs = Codecs(Codec("quantise", 3))
    us._world = SimpleNamespace(
        outside=lambda _: None, settings=SimpleNamespace(codecs=codecs, seed=SEED)
    )
    first, second = us.coded(value), us.coded(value)
    assert not np.array_equal(first, second)
    us.round = us.round + 1
    us.coded(value)
    us.round = np.array([3, 3])
    assert np.array_equal(us.coded(value), first)
