"""Flower apps under virtual time: models are Flower's own, and everything else is desim's."""

import importlib.metadata
import importlib.util
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from mutant import mutant

import desim
from desim.errors import InputError, RunError
from desim.flower import apps
from desim.flower.asked import app_of, keys

FOLDER = Path(__file__).parent / "flower_apps" / "lines"
CONFIG = {
    "step": 0.1,
    "fraction": 1.0,
    "limit": 3600.0,
    "wrong": "",
    "row": False,
    "asked": 1.0,
    "central": False,
    "noise": "",
}
NODES = 4
HERE = importlib.util.find_spec("flwr") is not None
pytestmark = [
    pytest.mark.skipif(not HERE, reason="flwr is not installed: pip install 'desim[flower]'"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
SLOWER = {"speed": ["40 /s", "20 /s", "10 /s", "2 /s"]}


def scenario(server="app", client="app", *, config=(), rounds=None, **sections):
    """A scenario that plays parts of the app of these tests, whose nodes differ in speed."""
    words = [str(FOLDER)]
    app = app_of(words, config)
    own = keys(app, words, config, NODES, rounds, 0)
    for where in (own["problem"]["model"], own["problem"]["data"]["arguments"]):
        where |= {"server": f"lines_server:{server}", "client": f"lines_client:{client}"}
    if (server, client) != ("app", "app"):
        own["observe"] = {"metrics": []}
    base = {"network": "lan", "compute": SLOWER, **own, "engine": "agents"}
    options = sections.pop("algorithm", {})
    base |= {"algorithm": own["algorithm"] | options, **sections}
    return base


def played(*parts, **sections):
    return desim.run(scenario(*parts, **sections))


def reference(server="app", client="app", nodes=NODES, late=(), order=1, **config):
    from naive import flower

    whole = {"strategy": "FedAvg", "rounds": 3, **CONFIG, **config}
    names = f"lines_server:{server}", f"lines_client:{client}"
    return flower.final(FOLDER, *names, nodes, whole, late, order)


def error(run, expected):
    return np.abs(run.model[-1] - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("strategy", ["FedAvg", "FedAdam", "FedProx"])
def test_the_model_is_that_of_flowers_own_run(strategy):
    run = played(config=[f"strategy={strategy}"])
    assert run.model.shape == (4, 3)
    assert error(run, reference(strategy=strategy)) <= 1e-12
    assert error(run, reference(strategy=strategy, nodes=NODES - 1)) > 1e-3


def test_so_is_that_of_the_classic_interface_whose_clients_are_asked_at_once():
    run = played("classic", "classic", rounds=3)
    assert error(run, reference("classic", "classic")) == 0.0  # one order of sums: by node
    assert error(run, reference("classic", "classic", order=-1)) > 0.0
    assert error(run, reference("classic", "classic", nodes=NODES - 1)) > 1e-3
    waits = run.events[run.events["kind"] == "aggregate"]
    assert waits["value"].tolist() == [NODES] * 3  # not one collection for each client


def test_a_torch_client_comes_to_the_model_of_flowers_own_run(monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setenv("LINES_WITH_TORCH", "yes")
    own = ["row=true", "rounds=2", "asked=0.0"]
    run = played("app", "learnt", config=own)
    expected = reference("app", "learnt", row=True, rounds=2, asked=0.0)
    assert error(run, expected) <= 1e-12
    assert "No evaluate function" in " ".join(run.manifest["warnings"])
    drawn = [played("app", "learnt", config=[*own, "wrong=draws"], seed=k) for k in (1, 1, 2)]
    assert np.array_equal(drawn[0].model, drawn[1].model)
    assert not np.array_equal(drawn[0].model, drawn[2].model)


def test_the_same_log_twice_and_on_both_engines():
    some = dict(config=["fraction=0.5"], network="4g")
    runs = [played(**some), played(**some), played(**some, engine="cohort")]
    tables = [(one.events, one.metrics, one.releases) for one in runs]
    for other in tables[1:]:
        assert all(a.equals(b) for a, b in zip(tables[0], other, strict=True))
    assert len({*runs[0].events.query("kind == 'compute'")["agent"]}) > 2  # draws differ by round
    assert not played(**some, seed=1).events.equals(runs[0].events)


def test_seconds_follow_from_bytes_and_examples():
    from flwr.app import ArrayRecord

    run = played(config=["rounds=1"])
    work = run.events.query("kind == 'compute' and round == 1").set_index("agent")["seconds"]
    assert work.to_dict() == pytest.approx({0: 4 / 40, 1: 5 / 20, 2: 6 / 10, 3: 7 / 2})
    sizes = run.events.query("kind == 'send' and round == 1")["bytes"]
    content = len(ArrayRecord([np.zeros(3)])["0"].data)
    assert content < sizes.min() <= sizes.max() < content + 400
    again = played(config=["rounds=1"], algorithm={"passes": 3})
    longer = again.events.query("kind == 'compute' and round == 1").set_index("agent")["seconds"]
    assert longer[3] == pytest.approx(3 * work[3])


def test_messages_of_many_sizes_are_one_call(monkeypatch):
    """Who says more than a round has exchanges asks too much, whatever the sizes."""
    monkeypatch.setattr("desim.engine.hub.EXCHANGES", 2)
    run = played(config=["rounds=1", "wrong=sizes"], observe={"metrics": []})
    replies = run.events.query("kind == 'send' and agent >= 0 and round == 1").sort_values("agent")
    assert replies["bytes"].diff().dropna().tolist() == [1.0] * (NODES - 1)
    monkeypatch.setattr("desim.engine.hub.EXCHANGES", 0)
    with pytest.raises(RunError, match="found too many questions to nodes; allowed: a model"):
        played(config=["rounds=1"])


def test_metrics_are_what_the_nodes_say():
    run = played(config=["rounds=2"])
    A, b = _rows(range(NODES))
    w = run.model[-1]
    losses = [np.mean((A[i] @ w - b[i]) ** 2) for i in range(NODES)]
    right = sum(np.sum(np.abs(A[i] @ w - b[i]) < 1.0) for i in range(NODES))
    assert run.curve("loss")["value"].iloc[-1] == pytest.approx(sum(losses))
    assert run.curve("accuracy")["value"].iloc[-1] == pytest.approx(right / sum(map(len, b)))


def test_nodes_that_say_no_examples_count_alike():
    run = played(config=["rounds=1", "wrong=unweighed", "asked=0.0"])
    A, b = _rows(range(NODES))
    shares = [np.mean(np.abs(a @ run.model[-1] - y) < 1.0) for a, y in zip(A, b, strict=True)]
    assert 0.0 < np.mean(shares) < 1.0
    assert run.curve("accuracy")["value"].iloc[-1] == pytest.approx(np.mean(shares), abs=1e-3)
    assert "all nodes count alike in accuracy" in " ".join(run.manifest["warnings"])


def test_figures_that_no_node_says_are_not_shown_as_zeros():
    for name in ("loss", "accuracy"):
        tree = scenario(config=["rounds=1"], observe={"metrics": [name]})
        tree["problem"]["model"][name] = "eval_none"
        with pytest.raises(InputError, match=f"and no eval_none; .*without {name}"):
            desim.run(tree)


@pytest.mark.parametrize(
    ("place", "keys"),
    [
        ("data", {"scale": "standard"}),
        ("data", {"intercept": True}),
        ("", {"partition": "iid"}),
        ("", {"agents": NODES - 1}),
    ],
)
def test_rows_that_are_not_those_of_the_nodes_are_refused(place, keys):
    tree = scenario(config=["rounds=1"])
    (tree["problem"][place] if place else tree["problem"]).update(keys)
    with pytest.raises(InputError, match="found other rows than those of 4 nodes"):
        desim.load(tree) and desim.run(tree)


def _rows(nodes):
    sys.path.insert(0, str(FOLDER))
    try:
        from lines_task import rows
    finally:
        sys.path.remove(str(FOLDER))
    return zip(*(rows(i) for i in nodes), strict=True)


def test_a_deadline_leaves_out_whoever_is_late():
    run = played(config=["rounds=1"], policy={"deadline": "2 s"})
    A, b = _rows(range(NODES - 1))
    w = np.full(3, 0.25)
    rows = [(a, y) for a, y in zip(A, b, strict=True)]
    ends = []
    for a, y in rows:
        own = w
        for _ in range(2):
            own = own - 0.1 * a.T @ (a @ own - y) / len(y)
        ends.append(own)
    expected = np.average(ends, axis=0, weights=[len(y) for _, y in rows])
    assert error(run, expected) <= 1e-12
    assert error(run, reference(rounds=1)) > 1e-3


def test_secure_sums_recover_the_masks_of_the_late():
    run = played("secret", "secret", policy={"deadline": "2 s"}, rounds=1)
    came = run.events[run.events["kind"] == "aggregate"]["value"].tolist()
    assert came == [4, 4, 3, 3]
    assert not any("too few replies" in one for one in run.manifest["warnings"])
    in_time = played(config=["rounds=1"], policy={"deadline": "2 s"})  # the mean, as seen above
    _, b = _rows(range(NODES - 1))
    step, heaviest = 2 * 8.0 / 2**22, 1000.0  # of the secure sum's numbers, and its max_weight
    rounding = step * heaviest * (len(b) + 1) / sum(map(len, b))  # a step each, and the weights'
    assert np.abs(run.model[-1] - in_time.model[1]).max() < rounding
    assert np.abs(run.model[-1] - reference(rounds=1)).max() > 100 * rounding


def test_a_secure_sum_takes_no_late_replies():
    with pytest.raises(RunError, match=r"late: carry with a secure sum.*allowed: late: discard"):
        played("secret", "secret", policy={"deadline": "2 s", "late": "carry"}, rounds=1)


def test_rounds_without_a_model_are_told():
    run = played("secret", "secret", policy={"deadline": "0.2 s"}, rounds=1)
    assert run.manifest["rounds"] == 0
    assert any("made 0 models in 1 rounds" in one for one in run.manifest["warnings"])


def test_an_app_that_pushes_and_pulls_goes_on_with_every_reply():
    run = played("pushing", "app", policy="each", rounds=50, observe={"metrics": []})
    waits = run.events[run.events["kind"] == "aggregate"]
    assert waits["value"].tolist() == [1.0] * 6
    order = run.events.query("kind == 'deliver' and agent == -1")["peer"].tolist()[:6]
    w = {i: np.full(3, 0.25) for i in range(NODES)}
    model = np.full(3, 0.25)
    for i in order:
        A, b = next(zip(*_rows([i]), strict=True))
        own = w[i]
        for _ in range(2):
            own = own - 0.1 * A.T @ (A @ own - b) / len(b)
        model = 0.5 * model + 0.5 * own
        w[i] = model
    assert error(run, model) <= 1e-12
    assert order.count(0) > order.count(3)


def test_an_app_without_a_model_asks_its_nodes():
    run = played("asking", "app", rounds=5)
    assert (run.status, run.manifest["rounds"]) == ("done", 2)
    assert sys.modules["lines_server"].final == [2 * sum(4 + i for i in range(NODES))]
    assert (
        run.events.query("kind == 'deliver' and agent == -1")["round"].tolist() == [1] * 4 + [2] * 4
    )
    assert played("asking", "app", rounds=1).manifest["rounds"] == 1
    assert "the app sends no model" in " ".join(run.manifest["warnings"])


def test_a_node_does_one_thing_after_the_other_whether_its_reply_is_pulled_or_not():
    run = played("asking", "app", rounds=5, config=["wrong=unheard"])
    calls = run.events.query("kind == 'deliver' and agent == 0")["time"].tolist()
    replies = run.events.query("kind == 'deliver' and peer == 0")["time"].tolist()
    assert (len(calls), len(replies)) == (2, 2)  # the third is pushed when the app ends
    assert replies[0] < calls[1] < replies[1]


def test_a_run_on_another_network_is_that_run_without_training():
    run = played(config=["rounds=2"])
    from desim.runs.retime import retime

    other = retime(run, network="4g")
    again = played(config=["rounds=2"], network="4g")
    assert other.events["time"].equals(again.events["time"])
    assert not other.events["time"].equals(run.events["time"])


def test_a_run_ends_with_the_model_that_meets_its_target():
    """Nobody evaluates it in virtual time, so that other worlds are played from notes."""
    from desim.experiments.ranking import contenders
    from desim.scenario.load import load

    own = scenario(observe={"metrics": ["loss"]}, engine="auto")
    run = desim.run(own, overrides={"stop.metric": {"loss": 10.0}})
    assert run.manifest["rounds"] == 2
    assert run.manifest["time"] == run.curve("loss")["time"].iloc[-1]
    target = "loss", 10.0
    found = contenders.entered(contenders.aimed(load(own), target), target)
    assert (found.way, found.seconds(load(own))) == ("notes", run.manifest["time"])
    last = desim.run(own)
    assert last.manifest["time"] > last.curve("loss")["time"].iloc[-1]  # the last is evaluated


def test_a_run_says_which_file_is_another_one(tmp_path):
    import shutil

    from desim.flower.asked import PLUGIN
    from desim.runs.retime import retime

    file = Path(shutil.copy(PLUGIN, tmp_path / "own_plugin.py"))
    own = scenario(config=["rounds=1"], plugins=[str(file)])
    desim.run(own, tmp_path / "run")
    file.write_text(file.read_text("utf-8") + "# another one\n", "utf-8")
    with pytest.raises(InputError, match=f"those of the run .found another {file}; sha256"):
        retime(desim.open(tmp_path / "run"), network="4g")


def test_a_plug_in_of_desims_own_is_where_desim_is(tmp_path):
    """A run that was stored elsewhere names it where it was there."""
    from desim.flower.asked import PLUGIN

    own = scenario(config=["rounds=1"], plugins=["/elsewhere/lib/desim/flower/as_plugin.py"])
    assert desim.load(own).plugins == (PLUGIN,)
    with pytest.raises(InputError, match=r"found ./elsewhere/desim/no.py., which does not exist"):
        desim.load(own | {"plugins": ["/elsewhere/desim/no.py"]})


def test_an_app_ends_when_the_run_does():
    run = played(stop={"time": "1 s"}, config=["rounds=9"])
    assert (run.status, run.manifest["rounds"]) == ("done", 0)
    assert not [one for one in threading.enumerate() if one.name == "flower-server-app"]


def test_a_program_that_was_left_open_ends_its_own_app_alone(monkeypatch):
    """It is closed when it is collected, in whichever thread, while another app may play."""
    from desim.flower.probe import Live, over
    from desim.flower.seam import Seam

    old, new = Seam(over), Seam(over)
    monkeypatch.setattr(Live, "seam", new)
    Live.end(old)
    assert Live.seam is new
    assert not new.ended
    new.begin(new.end)  # collected in the app's own thread
    assert new.next().kind == "done"
    Live.end(new)
    assert new.ended
    assert Live.seam is None


def test_epsilon_of_local_noise_is_that_of_its_mod():
    run = played("app", "private", config=["rounds=2"], algorithm={"charge": "models"})
    scale = 1.0 * np.sqrt(2 * np.log(1.25 / 1e-3)) / 2.0
    rows = run.releases[run.releases["mechanism"] == "clipped-gaussian"]
    assert len(rows) == 2 * NODES
    assert np.allclose(rows["sensitivity"] / rows["scale"], 2 * 0.5 / scale)
    told = dict(view="coordinator", relation="replace-one", delta=1e-5)
    gdp = np.sqrt(2.0) * 2 * 0.5 / scale  # of two releases
    assert run.account(**told).worst == pytest.approx(_epsilon(gdp, 1e-5), rel=1e-3)
    everything = played("app", "private", config=["rounds=2"])
    assert everything.account(**told).worst == np.inf
    assert "metrics in replies have no noise" in " ".join(everything.manifest["warnings"])


def test_noise_is_that_of_the_mod_of_each_function_and_none_behind_others():
    """`private` has another function to train, by less clipping, which nobody calls."""
    from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
    from flwr.app import MetricRecord as Metrics
    from flwr.common import Metadata

    from desim.flower.noise import Charges

    parts = app_of([str(FOLDER)], []).loaded()
    import lines_client

    def reply(**records):
        about = Metadata(1, "a", 2, 1, "", "", 0.0, 9.0, "train")
        return Message(content=RecordDict(records), metadata=about)

    arrays = ArrayRecord([np.zeros(3)])
    charges = Charges(parts._replace(client=lines_client.private), NODES, "models")
    reach = {
        kind: charges.terms(charges.of(kind, reply(arrays=arrays))).sensitivity[0]
        for kind in ("train", "train.default", "train.little")
    }
    assert reach == pytest.approx({"train": 1.0, "train.default": 1.0, "train.little": 0.2})
    assert charges.of("query", reply(arrays=arrays)) == "bare"
    assert charges.of("train", reply(said=Metrics({"loss": 1.0}))) == "nothing"
    for one in ({"arrays": arrays}, {}):  # a model as bytes is none of the metrics
        assert charges.of("train", reply(**one, c=ConfigRecord({"w": b"0"}))) == "bare"
    assert "hold bytes or lists" in charges.warnings[-1]
    behind = Charges(parts._replace(client=lines_client.outside), NODES, "models")
    assert behind.of("train", reply(arrays=arrays)) == "bare"
    whole = ArrayRecord([np.zeros(3), np.zeros(2, int)])  # flwr's noise on these is rounded to 0
    assert charges.of("train", reply(arrays=whole)) == "bare"
    assert "round noise to nothing" in charges.warnings[-1]


def test_noise_of_a_mod_that_lets_a_message_pass_or_of_an_app_of_ones_own_is_none():
    from flwr.client.mod import LocalDpMod as Classic
    from flwr.clientapp import ClientApp
    from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod

    from desim.flower.central import _clipped
    from desim.flower.noise import _local, chains

    def passed(message, context):
        return message

    classic, own = ClientApp(), type("Own", (ClientApp,), {"__module__": "mine"})(mods=[])
    classic.train("little", mods=[Classic(0.5, 1.0, 2.0, 1e-3)])(passed)
    assert _local(classic) == {}  # it looks at messages of type train alone
    classic.train(mods=[Classic(0.5, 1.0, 2.0, 1e-3)])(passed)
    assert [*_local(classic)] == ["train"]
    own.train(mods=[LocalDpMod(0.5, 1.0, 2.0, 1e-3), fixedclipping_mod])(passed)
    assert _local(own) == {}
    assert not _clipped(chains(own))
    assert set(_local(ClientApp(lambda context: None, mods=[Classic(0.5, 1.0, 2.0, 1e-3)])))


def _epsilon(mu, delta):
    """Of mu-GDP: the least for which Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu) <= delta."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    def excess(e):
        return norm.cdf(mu / 2 - e / mu) - np.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta

    return brentq(excess, 0.0, 100.0)


def test_what_the_server_measures_is_said(tmp_path):
    run = played(config=["rounds=2", "central=true"])
    lengths = [np.linalg.norm(one) for one in run.model]
    said = run.listeners["flower"]
    assert [one["length"] for one in said["rounds"]] == pytest.approx(lengths)
    assert said["length"] == pytest.approx(lengths[-1])


def test_measured_times_are_written_once_and_then_read(tmp_path):
    file = tmp_path / "times.json"
    own = {"work": "measured", "times": str(file)}
    some = dict(config=["rounds=1"], algorithm=own, compute={"speed": "1 /s"})
    first, text = played(**some), file.read_text()
    again = played(**some)
    assert file.read_text() == text
    assert first.events.equals(again.events)
    from desim.flower.nodes import Times

    for wrong in ("[]", '{"seconds": {"0 3 train": -1.0}}', '{"seconds": {"0 3 train": NaN}}'):
        file.write_text(wrong)
        with pytest.raises(InputError, match="no times of calls"):
            Times(file)
    with pytest.raises(InputError, match=r"found no folder .*nowhere"):
        Times(tmp_path / "nowhere" / "times.json")


def test_late_replies_come_with_the_next_of_their_kind():
    some = dict(config=["rounds=3"], compute={"speed": ["40 /s", "40 /s", "40 /s", "3 /s"]})
    run = played(**some, policy={"deadline": "1 s", "late": "carry"})
    waits = run.events[run.events["kind"] == "aggregate"]["value"].tolist()
    assert sum(waits[::2]) > 3 * len(waits[::2])  # node 3 takes part, a round later
    with pytest.raises(RunError, match="replies that attackers, or a listener, changed"):
        played(**some, attackers={"share": "25 %", "attack": "sign-flip"})


def test_who_was_late_trains_again_as_soon_as_its_reply_is_here():
    """Node 3 owes one when the others evaluate; it comes before the next round trains."""
    quick = ["40 /s", "40 /s", "40 /s", "5 /s"]
    run = played(
        config=["rounds=2"], compute={"speed": quick}, policy={"deadline": "1 s", "late": "carry"}
    )
    calls = run.events.query("kind == 'send' and agent == -1").groupby("time")["peer"]
    assert [len(one) for _, one in calls][:3] == [4, 3, 4]


WRONG = {
    "wrong=exit": (RunError, "node 2 .*, round 1, train: .*SystemExit: no GPU"),
    "wrong=count": (RunError, "node ., round 1, train: found num-examples -1; allowed: 0 or more"),
    "wrong='per cent'": (InputError, "accuracy of .*; allowed: 0 to 1, or observe.metrics without"),
    "wrong=client": (RunError, "node 2 .*, round 1, train: .*OSError: the disk of this node"),
    "wrong=echo": (RunError, "node 2, round 1, train: .*no reply; allowed: .*reply_to=message"),
    "wrong=server": (InputError, "ServerApp raised LookupError: no such strategy"),
    "limit=30.0": (RunError, "timeout=30 .*policy: all; allowed: policy: {deadline: 30 s}"),
}


@pytest.mark.parametrize("config", WRONG)
def test_errors_name_the_node_and_the_round(config):
    kind, text = WRONG[config]
    with pytest.raises(kind, match=text) as found:
        played(config=[config])
    if config == "wrong=client":
        assert "lines_client.py" in str(found.value)  # the traceback


def test_what_an_app_does_not_say_is_said():
    some = dict(policy="each", rounds=2, observe={"metrics": []})
    text = " ".join(played("pushing", "app", config=["wrong=silent"], **some).manifest["warnings"])
    assert "say no num-examples, so that they take no time" in text
    assert "would go on, but stop ends it" in text
    assert "num-examples" not in " ".join(played("pushing", "app", **some).manifest["warnings"])


def test_an_edit_or_a_number_that_is_none_leaves_a_play_alone(tmp_path):
    import shutil

    from desim.flower import probe
    from desim.flower.as_plugin import App, Keys

    folder = shutil.copytree(FOLDER, tmp_path / "lines")
    app = app_of([str(folder)], ["limit=nan"])
    known = probe.evaluator(app, NODES, 0)
    assert probe.evaluator(app_of([str(folder)], ["limit=nan"]), NODES, 0) is known
    model = App.__new__(App)
    model.parameters, model.seed = Keys(app=str(folder), agents=NODES), 0
    first = model.evaluator
    (folder / "more.py").write_text("x = 1\n")
    assert model.evaluator is first


def test_files_of_an_app_are_read_once_until_somebody_writes_them(tmp_path, monkeypatch):
    import shutil

    from desim.flower import probe

    app = app_of([str(shutil.copytree(FOLDER, tmp_path / "lines"))], [])
    before = probe._files(app)
    reads, read = [], Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda own: reads.append(own) or read(own))
    assert probe._files(app) == before
    assert reads == []
    (tmp_path / "lines" / "lines_task.py").write_text("DIM = 4\n")
    assert probe._files(app) != before
    assert len(reads) == 1


def test_an_audit_is_refused_as_it_cannot_change_the_data():
    from desim.experiments.audit.of_method import audit

    with pytest.raises(InputError, match="found flower, but an app's nodes have data of their own"):
        audit(desim.load(scenario(config=["rounds=1"])), delta=1e-5)


def test_an_app_that_waits_for_nodes_that_are_not_there_is_told(monkeypatch):
    import flwr.serverapp.strategy.strategy_utils as waiting

    monkeypatch.setattr(waiting, "sleep", lambda _: None)
    with pytest.raises(RunError, match="waits for more nodes than are there, 1 of 4"):
        played(participation={"uniform": 1})
    with pytest.raises(RunError, match="waits for more nodes than are there, 1 of 4"):
        played("classic", "classic", participation={"uniform": 1})
    with pytest.raises(InputError, match="waits for more nodes than are there, 1; allowed: more"):
        keys(app_of([str(FOLDER)], []), [str(FOLDER)], [], 1, None, 0)


def test_what_is_no_message_or_goes_nowhere_is_refused():
    from flwr.app import ArrayRecord, Message, Metadata, RecordDict

    from desim.flower.flower_messages import of_parameters, vector
    from desim.flower.grid import VirtualGrid
    from desim.flower.nodes import Nodes
    from desim.flower.seam import Seam

    for one in ("a word", None):
        with pytest.raises(TypeError, match="among messages; allowed: Message"):
            VirtualGrid(Seam(None)).push_messages([one])
    nodes = Nodes(app_of([str(FOLDER)], []), None, NODES, 0)
    with pytest.raises(RunError, match="a message to node 5; allowed: nodes that"):
        nodes.addressed(
            Message(RecordDict(), metadata=Metadata(1, "", 1, 5, "", "", 0, 1, "train"))
        )
    for array in (np.array([1j]), np.array(["a"])):
        for ask in (lambda one: vector(RecordDict({"a": ArrayRecord([one])})), of_parameters):
            with pytest.raises(RunError, match="allowed: real numbers"):
                ask(array if ask is not of_parameters else [array])


FOLDERS = {
    "words": ("tool = 3", "found no section .tool.flwr.app."),
    "no table": ("[tool.flwr.app]\ncomponents = ['a:b', 'c:d']", "found no serverapp"),
    "no text": (
        "[tool.flwr.app.config]\ndays = [1]\n[tool.flwr.app.components]\n"
        "serverapp = 'a:b'\nclientapp = 'a:b'",
        "config: days: .*allowed: text, a number, true or false",
    ),
    "nowhere": (None, "does not exist; allowed: the folder"),
    "empty": ("", "found no section .tool.flwr.app."),
    "no toml": ("[tool", "is no TOML"),
    "half": ("[tool.flwr.app.components]\nserverapp = 'a:b'", "found no clientapp"),
    "no module": (
        "[tool.flwr.app.components]\nserverapp = 'lines_nowhere:b'\nclientapp = 'a:b'",
        "found no module lines_nowhere",
    ),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_what_is_no_app_is_refused_in_words(name, tmp_path):
    text, message = FOLDERS[name]
    folder = tmp_path / "app"
    if text is not None:
        folder.mkdir()
        (folder / "pyproject.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        app_of([str(folder)], []).loaded()


def test_flower_that_is_missing_or_old_is_refused_in_words(monkeypatch):
    monkeypatch.setattr(apps, "version", lambda _: "1.41.3")
    with pytest.raises(InputError, match=r"found flwr 1\.41\.3; allowed: at least 1\.42"):
        app_of([str(FOLDER)], [])
    monkeypatch.setattr(apps, "version", importlib.metadata.version)
    with pytest.raises(InputError, match="allowed: strategy, rounds, step"):
        app_of([str(FOLDER)], ["stepp=1"])
    for text in ("step=2020-01-01", "step=[1]", "step={a=1}"):
        with pytest.raises(InputError, match=r"step: .*allowed: text, a number"):
            app_of([str(FOLDER)], [text])
    with pytest.raises(InputError, match="found '=1'; allowed: KEY=VALUE"):
        app_of([str(FOLDER)], ["=1"])


def test_replies_that_no_policy_let_through_are_noticed(monkeypatch):
    """A twin that hands over what nodes computed, late or not, comes to another model."""
    from desim.flower import plays

    right = "replies = [self.here.pop(one) for one in came]"
    wrong = right + "\n        replies += [*self.box.values()]"
    monkeypatch.setitem(sys.modules, "desim.flower.plays", mutant(plays, right, wrong))
    run = played(config=["rounds=1"], policy={"deadline": "2 s"})
    assert error(run, reference(rounds=1)) <= 1e-12


def test_results_in_the_order_in_which_clients_were_drawn_are_noticed(monkeypatch):
    from desim.flower import grid

    twin = mutant(grid, "key=lambda one: one[:2]", "key=lambda one: one[1]")
    monkeypatch.setattr("desim.flower.probe.listening", twin.listening)
    monkeypatch.setattr("desim.flower.probe.VirtualGrid", twin.VirtualGrid)
    run = played("classic", "classic", rounds=9, config=["rounds=9"])
    assert error(run, reference("classic", "classic", rounds=9)) > 0.0


def test_clients_that_are_asked_one_after_the_other_are_noticed(monkeypatch):
    from desim.flower import grid

    right = '(classic, "fit_clients", _gathered(grid, "fit")),'
    alone = (
        "lambda client_instructions, **named: [_gathered(grid, 'fit')([one], **named) "
        "for one in client_instructions][-1]"
    )
    twin = mutant(grid, right, f'(classic, "fit_clients", {alone}),')
    monkeypatch.setattr("desim.flower.probe.listening", twin.listening)
    run = played("classic", "classic", rounds=1)
    assert run.events.query("kind == 'aggregate'")["value"].tolist() == [1.0] * NODES
