"""What a class says of sums and of agents that forget is compared, and each lie is found."""

import pytest

import desim
from desim.experiments.contract import algorithm_laws, trust_laws
from desim.experiments.contract.stage import BrokenError, SkippedError, Stage
from desim.scenario import registry

SMALL = {"problem.agents": 3, "stop": {"rounds": 4}}
OWN = {"fed-plt": {"algorithm.rho": 0.5}, "fedbuff": {"policy": {"buffer": 2}}}
SAID = {
    "fedavg": 2, "fedprox": 2, "fedbuff": 2, "feddyn": 1, "scaffold": 1, "fed-plt": 1, "fedlin": 0,
}  # fmt: skip


def stage(name, **changes):
    """A method's small scenario."""
    return Stage(registry.get(name), None, {**SMALL, **OWN.get(name, {}), **changes})


@pytest.mark.parametrize("name", SAID)
def test_what_desims_own_methods_say_is_so(name):
    laws = trust_laws.believed(registry.get(name))
    assert len(laws) == SAID[name]
    for _, law in laws:
        assert "same" in law(stage(name))


def lie(name, changes, tmp_path):
    """A plug-in: desim's method of that name with other lines."""
    source = f"desim/methods/{name.replace('-', '_')}.py"
    text = (registry.Path(desim.__file__).parent.parent / source).read_text()
    for right, wrong in (*changes, (f'name = "{name}"', 'name = "lie"')):
        assert text.count(right) == 1, right
        text = text.replace(right, wrong)
    (tmp_path / "lie.py").write_text(text)
    registry.load_plugin(tmp_path / "lie.py")
    return stage("lie", **OWN.get(name, {}))


TOTAL = "total, n = hub.total(replies)  # what training changed"
TRAIN = "        us.x = x\n        y ="
PLT = '= {"send": "increments"}'
SUMS = [
    ("fedavg", [(TOTAL, f"{TOTAL}\n            n = len(replies.who)")]),
    ("fedavg", [(TOTAL, f"{TOTAL}\n            total = column_sums(replies.weighed)")]),
    ("fedavg", [(TOTAL, f"{TOTAL}\n            total = total / (1 + abs(replies.payload).max())")]),
    ("fedavg", [(TOTAL, "total, n = hub.total(replies._replace(payload=2.0 * replies.payload))")]),
    ("fedavg", [(TOTAL, "total, n = column_sums(replies.weighed), len(replies.who)")]),
    ("fedavg", [(TOTAL, f"{TOTAL}\n            n += replies.who.max() == 2")]),
    ("fedavg", [(TOTAL, f"{TOTAL}\n            n += (hub.round - replies.round).max()")]),
    ("fedavg", [(TOTAL, f"{TOTAL}\n            total = total + 1e-9 * SEEN"),
                (TRAIN, "        SEEN[:] = x.sum()\n        us.x = x\n        y ="),
                ("@formulas", "SEEN = np.zeros(1)\n\n\n@formulas")]),
    ("fed-plt", [(PLT, '= {"send": "z"}')]),
    ("fed-plt", [(PLT, "= True")]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes"), SUMS)
def test_who_takes_replies_otherwise_is_found(name, changes, tmp_path):
    with pytest.raises(BrokenError, match="it says summed, but"):
        trust_laws.sums(lie(name, changes, tmp_path))


KEEPS = [
    ("feddyn", [("    summed = True", "    summed = forgetful = True")]),
    ("scaffold", [("    summed = True", "    summed = forgetful = True")]),
    ("fedavg", [(TRAIN, "        x = 0.9 * x + 0.1 * us.x\n        us.x = x\n        y =")]),
    ("fedavg", [(TRAIN, "        x = x + 1e-9 * KEPT\n        KEPT[:] = x.sum()\n        y ="),
                ("@formulas", "KEPT = np.zeros(1)\n\n\n@formulas")]),
    ("fedavg", [(TRAIN, "        KEPT.append(x.sum())\n        x = x + KEPT[max(-3, -len(KEPT))]\n"
                        "        y ="), ("@formulas", "KEPT = []\n\n\n@formulas")]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes"), KEEPS)
def test_an_agent_that_remembers_is_found(name, changes, tmp_path):
    with pytest.raises(BrokenError, match="it says forgetful, but what agent 0 replies in round"):
        trust_laws.forgets(lie(name, changes, tmp_path))


def test_what_nobody_says_is_not_asked(monkeypatch):
    assert trust_laws.believed(registry.get("dsgd")) == []
    once = stage("fedavg", stop={"rounds": 1})
    with pytest.raises(SkippedError, match="second round"):
        trust_laws.forgets(once)
    monkeypatch.setattr(algorithm_laws, "LAWS", ())
    found = list(algorithm_laws.algorithm("fedavg", None, SMALL))
    assert [(one.law, one.outcome) for one in found] == [("sums", "kept"), ("forgets", "kept")]
