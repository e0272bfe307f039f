"""What check says of transport: which messages are much slower with it, and by how much."""

import re

import pytest
import yaml
from test_transport import WIDE

import desim
from desim.engine.opening import opening
from desim.interface.cli import main
from desim.scenario.build import build
from desim.scenario.described import _messages


def scenario(transport="ideal", speed=10, **network):
    link = {"latency": "50 ms", "bandwidth": "100 Mbit/s", "transport": transport}
    return {
        "problem": {"agents": 2, "data": WIDE, "loss": "squared"},
        "algorithm": {"name": "fedavg", "local": {"epochs": 1, "step": 1e-4}},
        "network": {"link": link, **network},
        "compute": {"speed": speed},
        "observe": {"metrics": []},
        "stop": {"rounds": 3},
    }


def told(tmp_path, capsys, *given):
    """The warnings' percentages, by way."""
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(scenario(*given)))
    with pytest.raises(SystemExit):
        main(["check", str(path)])
    said = capsys.readouterr()
    found = re.findall(r"kB (up|down) .*?\((\d+) % more\)", said.out + said.err)
    return {way: int(share) for way, share in found}


def replies(transport, speed):
    events = desim.run(scenario(transport, speed)).events
    last = events[(events.kind == "deliver") & (events.agent == -1) & (events["round"] == 3)]
    return float(last.seconds.iloc[0])


@pytest.mark.parametrize("speed", [10, 1])
def test_a_connection_rests_while_the_other_way_is_used(tmp_path, capsys, speed):
    """The agents compute for .2 s, less than a timeout; the model that comes takes the rest."""
    more = replies("tcp", speed) / replies("ideal", speed) - 1.0
    found = told(tmp_path, capsys, "ideal", speed)
    assert found["up"] == pytest.approx(100 * more, abs=1.0)
    assert found["up"] > 100


def test_who_is_always_at_work_is_not_warned_of(tmp_path, capsys):
    assert told(tmp_path, capsys, "tcp") == {}


def test_of_mixed_links_each_has_its_own_law():
    links = [{"sender": 0, "transport": "tcp"}]
    simulation = build(desim.load(scenario(links=links)))
    first, up = opening(simulation), simulation.settings.uplinks
    found = _messages(up, first.up)
    assert found[1] == pytest.approx(0.05 + first.up / 1e8)
    assert 0.05 < found[0] < 1.0


def test_messages_that_meet_where_that_is_left_out_are_told_of(tmp_path, capsys):
    mesh = {"topology": "ring", "link": {"latency": "20 ms", "bandwidth": "5 Mbit/s"}}
    mesh["link"]["transport"] = {"tcp": {"congestion": "reno"}}
    given = {**scenario(), "algorithm": {"name": "dsgd", "alpha": 1e-4}, "network": mesh}
    given["problem"] = {**given["problem"], "agents": 4}
    shares = {}
    for policy in ("all", {"deadline": "2 s"}):
        (path := tmp_path / "s.yaml").write_text(yaml.safe_dump({**given, "policy": policy}))
        with pytest.raises(SystemExit):
            main(["check", str(path)])
        said = capsys.readouterr()
        words = " ".join((said.out + said.err).split())
        shares[str(policy)] = re.findall(r"meet on a line take up to (\d+) % longer", words)
    assert shares.pop("all") == []
    assert 10 < int(shares.popitem()[1][0]) < 100
