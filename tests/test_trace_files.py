"""Files of FedScale, Mahimahi and M-Lab as they lie: against walks by hand, torn, forged, wrong."""

import gzip
import os
import pickle
import struct

import naive.trace_files
import numpy as np
import pytest
from cases import merged, star
from mutant import mutant
from test_engines import differences
from test_traces import links_with

import desim
from desim.errors import InputError
from desim.network.conditions import devices, pickles, trace_formats
from desim.network.timeline.messages import time_on_wire
from desim.scenario.build import build
from desim.scenario.catalogue import listed, overview
from desim.scenario.scaled import scaled

WAYS = {"loops": True, "shuffled": False, "where": "here"}


def stamps_of(seed):
    """Stamps of a link that stalls, with several in a ms, perhaps of 0 ms."""
    rng = np.random.default_rng(seed)
    steps = rng.choice([0, 0, 0, 1, 1, 2, 9], rng.integers(1, 25))
    return [*map(int, np.cumsum([*steps, 1]))]


def mahimahi(path, stamps):
    path.write_text("".join(f"{one}\n" for one in stamps))
    return path


def capacity(clients):
    """FedScale's devices: {client: ms a row, kbit/s}."""
    return {
        1 + k: {"computation": 4.0 + 3.0 * k, "communication": 700.0 + 400.0 * k}
        for k in range(clients)
    }


def behaviour(seed, clients=5):
    """FedScale's clients: whole seconds, some spans of no length, some up to the end."""
    rng, found = np.random.default_rng(seed), {}
    for client in range(clients):
        times = np.sort(rng.integers(0, 60, 2 * rng.integers(1, 5))).tolist()
        times[-1] += 1
        spans = {"active": times[::2], "inactive": times[1::2]}
        finish = times[-1] + int(rng.integers(0, 9))
        found[client + 1] = {"duration": 1, "finish_time": finish, "model": "M 1", **spans}
    return found


def pickled(path, value, protocol=4):
    path.write_bytes(pickle.dumps(value, protocol))
    return path


NDT = """id,date,a.MeanThroughputMbps,a.MinRTT,a.LossRate,client.Geo.City
x,2024-01-01,12.5,18,0.01,"Torino, TO"
y,2024-01-01,93.25,7.5,0,Oslo
z,2024-01-02,3.75,140,0.05,
"""


def ndt(path, text=NDT):
    path.write_text(text)
    return path


def transfer_gap(folder, twin=naive.trace_files):
    """Largest difference in s from waiting for one opportunity after the other."""
    gaps = []
    for seed in range(12):
        stamps = stamps_of(seed)
        path = mahimahi(folder / "link.up", stamps)
        links = links_with(trace_formats.deliveries(path, (), 1.0, **WAYS).samples, True)
        for begin in (0, 1, stamps[-1] - 1, stamps[-1], 3 * stamps[-1] + 2):
            for bits in (1, 11_999, 29_000, 60_001, 719_993):
                time = begin / 1000 + time_on_wire(links, 0, begin / 1000, bits)
                gaps.append(abs(time - twin.departure(stamps, begin, bits)))
    return max(gaps)


def test_packets_leave_as_mahimahi_lets_them(tmp_path):
    assert transfer_gap(tmp_path) < 1e-9


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("period = stamps[-1]\n    laps = range", "period = stamps[-1] + 1\n    laps = range"),
        ("time > begin", "time >= begin"),
        ("bits / (12_000 * number)", "0.5"),
        ("lap * period + stamp", "lap * period + max(stamp, 1)"),
    ],
)
def test_other_links_are_noticed(tmp_path, right, wrong):
    assert transfer_gap(tmp_path, mutant(naive.trace_files, right, wrong)) > 1e-4


def test_a_constant_link_and_its_compressed_file(tmp_path):
    assert trace_formats._deliveries(
        trace_formats.Stamp.of(mahimahi(tmp_path / "12", [1])), "here"
    ).tolist() == [[0.0, 0.001], [12e6, 0.0], [0.0, 12e3]]
    plain = mahimahi(tmp_path / "link.up", stamps_of(3))
    packed = tmp_path / "link.up.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes().replace(b"\n", b"\r\n")[:-2]))
    assert trace_formats.format_of(packed) == "Mahimahi"
    both = [trace_formats.deliveries(one, (), 1.0, **WAYS).samples for one in (plain, packed)]
    assert np.array_equal(*both)


def test_what_ends_like_a_trace_of_packets_is_refused_as_one(tmp_path):
    path = tmp_path / "link.down"
    for text in (b"# stamps\n1\n", b"1\t1500\n", b"\xef\xbb\xbf1\n", "1\n".encode("utf-16")):
        path.write_bytes(text)
        with pytest.raises(InputError, match="in line 1; allowed: a Mahimahi trace"):
            settings({"network": {"link": {"bandwidth": {"trace": str(path)}}}})
    path.write_text("time,a\n0,1\n")
    assert trace_formats.format_of(path) == "table"


def test_a_trace_in_blocks_is_the_same(tmp_path, monkeypatch):
    path = mahimahi(tmp_path / "link", stamps_of(7))
    whole = trace_formats._deliveries.__wrapped__(trace_formats.Stamp.of(path), "here")
    monkeypatch.setattr(trace_formats, "BLOCK", 5)
    parts = trace_formats._deliveries.__wrapped__(trace_formats.Stamp.of(path), "here")
    assert np.array_equal(whole, parts)


def uplink_gap(run, stamps, latency, twin=naive.trace_files):
    """Largest difference between a message's packets, and those that could leave meanwhile."""
    gaps, sent = [], {}
    for row in run.events[run.events["peer"].eq(-1) | run.events["agent"].eq(-1)].itertuples():
        if row.kind == "send" and row.peer == -1:
            sent[row.agent, row.round] = row.time
        elif row.kind == "deliver" and row.agent == -1:
            begin, end = sent[row.peer, row.round], row.time - latency
            gaps.append(twin.gone(stamps, end) - twin.gone(stamps, begin) - row.bytes / 24)
    assert len(gaps) > 20
    return np.abs(gaps).max()


def files(folder):
    """A scenario's keys, each with a file."""
    up = mahimahi(folder / "link.up", stamps_of(5))
    devices_, phones = pickled(folder / "cap", capacity(9)), pickled(folder / "beh", behaviour(4))
    tests = ndt(folder / "ndt.csv")
    return {
        "network": {
            "link": {"latency": {"trace": str(tests)}, "loss": {"trace": str(tests)}},
            "uplink": {"bandwidth": {"trace": str(up), "unit": "0.01 bit/s", "offset": "random"}},
            "downlink": {"bandwidth": {"trace": str(devices_)}},
        },
        "compute": {"speed": {"trace": str(devices_)}, "slow": {"fraction": 0}},
        "churn": {"trace": str(phones)},
    }


def test_engines_wait_for_the_same_packets(tmp_path):
    stamps = stamps_of(5)
    up = {"trace": str(mahimahi(tmp_path / "up", stamps)), "unit": "0.016 bit/s"}  # 24 bytes each
    network = {"link": {"latency": "7 ms", "jitter": "none"}, "uplink": {"bandwidth": up}}
    run = desim.run({**star(), "network": network}, overrides={"engine": "agents"})
    assert uplink_gap(run, stamps, 0.007) < 1e-6
    wrong = mutant(naive.trace_files, "laps * len(stamps)", "laps")
    assert uplink_gap(run, stamps, 0.007, wrong) > 0.1


def test_engines_agree_on_all_files_at_once(tmp_path):
    base = {**star(stop={"rounds": 6}), **files(tmp_path)}
    runs = [desim.run(base, overrides={"engine": one}) for one in ("cohort", "agents", "compiled")]
    assert runs[0].status == "done"
    assert [differences(runs[0], other) for other in runs[1:]] == [[], []]


def test_what_is_stored_is_read_again(tmp_path):
    scenario = desim.load({**star(), **files(tmp_path)})
    assert desim.load(scenario.written()) == scenario


def states_gap(clients, twin=naive.trace_files, folder=None):
    """How often a client is up when it should not be, or the other way."""
    traces = trace_formats.behaviours(pickled(folder / "beh", clients), (), **WAYS)
    who = [c for c in clients.values() if any(map(int.__lt__, c["active"], c["inactive"]))]
    assert len(traces.first) == len(who) + 1
    wrong = 0
    for number, trace in enumerate(who):
        part = traces.samples[:, traces.first[number] : traces.first[number + 1]]
        for time in np.arange(0.25, 3.0 * trace["finish_time"], 0.5):
            now = time % part[0, -1]
            up = part[1, np.searchsorted(part[0], now, "right") - 1]
            wrong += (up > 0.0) != twin.active(trace, time)
        up = np.diff(part[0]) * part[1, :-1]
        assert np.allclose(part[2], [0.0, *np.cumsum(up)])
    return wrong


def test_clients_are_up_when_fedscale_has_them_active(tmp_path):
    assert sum(states_gap(behaviour(seed), folder=tmp_path) for seed in range(6)) == 0


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('time % trace["finish_time"]', "time"),
        ('time % trace["finish_time"]', 'time % trace["inactive"][-1]'),
        ("first <= now < last", "first <= now"),
        ("any(", "not any("),
    ],
)
def test_other_spans_are_noticed(tmp_path, right, wrong):
    twin = mutant(naive.trace_files, right, wrong)
    assert sum(states_gap(behaviour(seed), twin, tmp_path) for seed in range(6)) > 0


def test_a_run_has_the_absences_of_its_clients(tmp_path):
    clients = {
        0: {"active": [0, 4], "inactive": [3, 9], "finish_time": 9},
        1: {"active": [1], "inactive": [30], "finish_time": 8},
        2: {"active": [5, 5, 6], "inactive": [5, 6, 7], "finish_time": 10},
        3: {"active": [2], "inactive": [2], "finish_time": 10},  # never for any time
    }
    said = {"trace": str(pickled(tmp_path / "beh", clients)), "assign": "in-order"}
    changes = {"churn": said, "stop": {"time": "30 s"}, "compute": {"speed": "6 /s"}}
    run = desim.run(merged(star(), changes), overrides={"problem.agents": 3})
    turns = run.events[run.events["kind"].isin(["up", "down"]) & (run.events["time"] < 30.0)]
    found = [(r.agent, r.time, r.kind) for r in turns.itertuples()]
    wanted = [
        *((0, 9.0 * lap + at, kind) for lap in range(4) for at, kind in ((3, "down"), (4, "up"))),
        *((1, 8.0 * lap, "down") for lap in range(4)),
        *((1, 8.0 * lap + 1.0, "up") for lap in range(4)),
        (2, 0.0, "down"),
        *((2, 10.0 * lap + at, kind) for lap in range(3) for at, kind in ((5, "up"), (7, "down"))),
    ]
    assert sorted(found) == sorted(one for one in wanted if one[1] < 30.0)


def settings(changes):
    """What a scenario of star agents is built into."""
    return build(desim.load({**star(), **changes})).settings


def test_a_device_has_the_speed_and_the_link_of_one_client(tmp_path):
    said = {"trace": str(pickled(tmp_path / "cap", capacity(40)))}
    changes = {"network": {"link": {"bandwidth": said}}, "compute": {"speed": said}}
    found = settings(changes)
    table = {1e3 * one["communication"]: one["computation"] for one in capacity(40).values()}
    rates, speeds = found.uplinks.wires[1], devices.speeds_of(found.speeds)
    assert [1.0 / (3e-3 * table[rate]) for rate in rates] == pytest.approx(speeds, rel=1e-12)
    assert found.uplinks.plain
    assert np.array_equal(rates, found.downlinks.wires[1])
    assert len({*rates}) > 3
    apart = mutant(devices, "Stream.LINK if self.with_links else stream", "stream")
    law = trace_formats.capacity_speeds(
        tmp_path / "cap", (), 3e-3, None, loops=True, shuffled=True, where="here"
    )
    other = apart.Traces(**vars(law)).played(np.arange(6), 11, devices.Stream.SPEED)
    assert not np.array_equal(other[0], law.played(np.arange(6), 11, devices.Stream.SPEED)[0])


def test_clients_in_turn_by_name_and_by_median(tmp_path):
    said = {"trace": str(pickled(tmp_path / "cap", capacity(4))), "assign": "in-order"}
    found = settings({"compute": {"speed": said}})
    ms = [3e-3 * capacity(4)[1 + k % 4]["computation"] for k in range(6)]
    assert devices.speeds_of(found.speeds) == pytest.approx(1.0 / np.array(ms))
    named = {**said, "field": ["3"], "unit": "1 ms"}
    assert devices.speeds_of(settings({"compute": {"speed": named}}).speeds) == pytest.approx(100.0)
    median = {**said, "median": "50 /s"}
    speeds = devices.speeds_of(settings({"compute": {"speed": median}}).speeds)
    assert np.median(speeds[:4]) == pytest.approx(50.0)
    assert speeds[0] / speeds[3] == pytest.approx(13.0 / 4.0)


def test_an_agent_has_the_link_of_one_test(tmp_path):
    said = {"trace": str(ndt(tmp_path / "ndt.csv"))}
    found = settings({"network": {"link": {"bandwidth": said, "latency": said, "loss": said}}})
    tests = {12.5e6: 9e-3, 93.25e6: 3.75e-3, 3.75e6: 70e-3}
    for links in (found.uplinks, found.downlinks):
        assert links.latency.tolist() == pytest.approx([tests[rate] for rate in links.wires[1]])
        assert links.loss == (pytest.approx(0.02), pytest.approx(0.02))
    assert len({*found.uplinks.wires[1]}) == 3
    others = {"sender": 2, "bandwidth": "1 Mbit/s"}
    changes = {"network": {"link": {"bandwidth": said}, "links": [others], "contention": "fair"}}
    rates = settings(changes).uplinks.wires[1]
    assert rates[2] == 1e6
    assert np.array_equal(np.delete(rates, 2), np.delete(found.uplinks.wires[1], 2))


def test_two_hops_take_both_ends(tmp_path):
    text = "upload.MeanThroughputMbps,download.MeanThroughputMbps,MinRTT\n1,9,10\n4,3,30\n2,8,50\n"
    said = {"trace": str(ndt(tmp_path / "both.csv", text)), "assign": "in-order"}
    sides = {
        f"{name}link": {"bandwidth": {**said, "field": f"{name}load.MeanThroughputMbps"}}
        for name in ("up", "down")
    }
    network = {"topology": "ring", "link": {"latency": said}, **sides}
    found = build(
        desim.load({**star(), "algorithm": {"name": "dsgd", "alpha": 0.1}, "network": network})
    )
    links = found.settings.links
    up, down, way = [1e6, 4e6, 2e6], [9e6, 3e6, 8e6], [5e-3, 15e-3, 25e-3]
    ends = list(zip(*links.ends.tolist(), strict=True))
    assert links.wires[1].tolist() == [min(up[i % 3], down[j % 3]) for i, j in ends]
    assert links.latency.tolist() == pytest.approx([way[i % 3] + way[j % 3] for i, j in ends])


def test_worlds_scale_what_files_have(tmp_path):
    one = desim.load({**star(), **files(tmp_path)})
    factors = {"latency": 2.0, "bandwidth": 0.5, "speed": 4.0, "loss": 0.5}
    both = [build(case).settings for case in (one, scaled(one, factors))]
    for side in ("uplinks", "downlinks"):
        first, second = (getattr(case, side) for case in both)
        assert second.latency.tolist() == pytest.approx((2.0 * first.latency).tolist())
        assert second.loss[0] == pytest.approx(0.5 * first.loss[0])
    assert np.allclose(both[1].uplinks.samples[1], 0.5 * both[0].uplinks.samples[1])
    assert np.allclose(both[1].downlinks.wires[1], 0.5 * both[0].downlinks.wires[1])
    speeds = [devices.speeds_of(case.speeds) for case in both]
    assert np.allclose(speeds[1], 4.0 * speeds[0])


# Pickles: what Python reads, without Python's machine.

SHARED = [1, 2]
VALUES = [
    0, 255, 65_535, -1, 2**31, -(2**63), 2**63 - 1, 1.5, float("inf"), "", "é" * 200,
    b"", b"x" * 300, [], {}, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [[], [1]],
    {"a": SHARED, "b": SHARED}, {1: {"computation": 2.5}, "k" * 70_000: [0.5] * 1200},
]  # fmt: skip


@pytest.mark.parametrize("protocol", range(6))
def test_numbers_are_what_python_reads(protocol):
    """Protocols 0 to 2 write bytes by a name of Python's, which is refused."""
    for value in VALUES:
        program = pickle.dumps(value, protocol)
        if protocol < 3 and isinstance(value, bytes):
            with pytest.raises(
                pickles._Foreign, match=r"the name (_codecs\.encode|__builtin__\.bytes) of Python's"
            ):
                pickles.value_of(program)
        else:
            assert repr(pickles.value_of(program)) == repr(value)
    both = pickles.value_of(pickle.dumps({"a": SHARED, "b": SHARED}, protocol))
    assert both["a"] is both["b"]


class Command:
    """What runs a command when Python unpickles it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_forged_pickle_runs_nothing(tmp_path, protocol):
    """Python's own unpickler does what this one refuses to."""
    mark = tmp_path / "mark"
    forged = {1: {"computation": Command(mark), "communication": 1.0}}
    path = pickled(tmp_path / "cap", forged, protocol)
    assert trace_formats.format_of(path) == "FedScale"
    with pytest.raises(InputError, match=r"the name \w+\.system of Python's .* nothing was run"):
        settings({"compute": {"speed": {"trace": str(path)}}})
    assert not mark.exists()
    pickle.loads(path.read_bytes())
    assert mark.exists()


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({1: None}, "None"),
        ({1: True}, "True"),
        ({1: np.float64(2.0)}, "the name numpy"),
        ({1: {2}}, "the instruction EMPTY_SET"),
        ({1: bytearray(b"x")}, "BYTEARRAY8|builtins.bytearray"),
        ({1: 2**64}, "a whole number of 9 bytes"),
        ({1: complex(1)}, "the name builtins.complex"),
    ],
)
def test_what_else_pickles_hold_is_named(tmp_path, value, told):
    path = pickled(tmp_path / "cap", value)
    with pytest.raises(InputError, match=told):
        pickles.unpickled(path, "here")


def test_torn_and_broken_pickles_are_refused(tmp_path):
    whole = pickle.dumps(capacity(3))
    rng = np.random.default_rng(1)
    broken = [whole[:end] for end in range(2, len(whole))]
    for _ in range(150):
        wrong = bytearray(whole)
        wrong[rng.integers(2, len(whole))] = rng.integers(256)
        broken.append(bytes(wrong))
    torn = 0
    for text in broken:
        path = tmp_path / "cap"
        path.write_bytes(text)
        try:
            pickles.unpickled(path, "here")
        except InputError as error:
            torn += str(error).startswith("here: ")
    assert torn > len(whole)


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b".", "ends in the middle"),
        (b"\x80\x04" + b"]" * 300 + b".", "more than 200 containers"),
        (b"\x80\x04K\x01" + b"\x94" * 300 + b".", "more than 200 things"),
        (b"\x80\x04" + b"(" * 100, "more than 64 containers inside"),
        (b"\x80\x04K\x01.".ljust(5000), "larger than 0 MiB"),
        (b"\x80\x04K\x01K\x02a.", "no list"),
        (b"\x80\x04K\x01\x86.", "it takes more than there is"),
        (b"\x80\x04K\x01K\x02.", "2 things are left"),
        (b"\x80\x04]](K\x01u.", "no dictionary's"),
        (b"\x80\x04}]K\x01s.", "it has a list as a key"),
        (b"\x80\x04})" + b"\x85" * 150 + b"K\x01s.", "it has a tuple as a key"),
        (b"\x80\x04\xff.", "the byte 0xff"),
        (b"\x80\x04h\x05.", "KeyError"),
    ],
)
def test_greedy_pickles_are_refused(tmp_path, monkeypatch, program, told):
    monkeypatch.setattr(pickles, "MAX_ENTRIES", 200)
    monkeypatch.setattr(pickles, "MAX_BYTES", 4000)
    path = tmp_path / "cap"
    path.write_bytes(program)
    with pytest.raises(InputError, match=told):
        pickles.unpickled(path, "here")


# What is refused, by the key that names the file.


def changed(client, **changes):
    """FedScale's two clients, one of which differs."""
    return pickle.dumps({1: {**client}, 2: {**client, **changes}})


PHONE = {"active": [1, 4], "inactive": [2, 5], "finish_time": 6}
DEVICE = {"computation": 5.0, "communication": 10.0}
RATE, SPEED, AWAY = "network.link.bandwidth", "compute.speed", "churn"
WAY, LOSS = "network.link.latency", "network.link.loss"
TORN = gzip.compress("".join(f"{k * k}\n" for k in range(3000)).encode())[:-40]
REFUSED = [
    (RATE, "3\n7\n5\n", "found 5 after 7 in line 3"),
    (RATE, "3\n-7\n", "found '-7' in line 2"),
    (RATE, "3\n1.5\n", "found '1.5' in line 2"),
    (RATE, "\ufeff3\n7\n", r"found '\\ufeff3' in line 1"),
    (RATE, "3\n7 \n", "found '7 ' in line 2"),
    (RATE, "nan\n3\n", "found 'nan' in line 1"),
    (RATE, "3\n\n5\n", "found nothing in line 2"),
    (RATE, "3\n5 6\n", "found '5 6' in line 2"),
    (RATE, "3\n" + "9" * 16 + "\n", "found '9999999999999999' in line 2"),
    (RATE, "0\n0\n", "found 2 stamps, all of 0 ms"),
    (RATE, "", "found no stamp"),
    (RATE, TORN, "cannot be read as a Mahimahi trace|Compressed"),
    (RATE, "down,up\n1,2\n", "unit: missing; f is no file of FedScale"),
    (RATE, "time,a.MeanThroughputMbps\n0,1\n1,2\n", "unit: missing"),
    (RATE, "MeanThroughputMbps\nTrue\n", "found True in row 1"),
    (RATE, "MeanThroughputMbps\n1e305\n", r"found 1e\+305 to 1e\+305, where a 1 means 1e\+06"),
    (WAY, "MinRTT\n5e-324\n", "found .* where a 1 means 0.0005"),
    (RATE, "a.MeanThroughputMbps\n3\nnan\n", "found nan in row 2 of a.MeanThroughputMbps"),
    (RATE, "a.MeanThroughputMbps\n3\n0\n-1\n", "found 0 in row 2 .*, and 2 such rows"),
    (RATE, "a.MeanThroughputMbps\n3\nfast\n", "found fast in row 2"),
    (RATE, "a.MeanThroughputMbps\n", "found no row"),
    (RATE, "MinRTT,date\n3,2\n", "found the columns MinRTT, date; allowed: one called MeanThr"),
    (
        RATE,
        "up_MeanThroughputMbps,down_MeanThroughputMbps\n3,2\n",
        "found the columns up_MeanThroughputMbps, down_MeanThroughputMbps; .* or field",
    ),
    (WAY, "MeanThroughputMbps\n3\n", "allowed: one called MinRTT"),
    (WAY, "MinRTT,x\n4,5,6\n", "line 2: found 3 values; allowed: 2, as in the header"),
    (WAY, "MinRTT,x\n4,5\n6\n", "line 3: found 1 values"),
    (WAY, "MinRTT,MinRTT\n4,5\n", "found the columns MinRTT, MinRTT; allowed: one called MinRTT"),
    (WAY, "a_MinRTT\n3\n-4\n", "found -4 in row 2"),
    (LOSS, "LossRate\n0.5\n2.5\n", "found a loss of 250 % in row 2; .*unit: '%'"),
    (LOSS, "LossRate,date\n0.5,1\n,2\n", "found nan in row 2 of LossRate, and 1 such rows"),
    (LOSS, "loss\n0.5\n", "found the columns loss; allowed: one called LossRate"),
    (RATE, changed(DEVICE, communication=-1.0), "found communication -1.0 of client 2"),
    (RATE, changed(DEVICE, communication=float("nan")), "found communication nan of client 2"),
    (SPEED, changed(DEVICE, computation=0), "found computation 0 of client 2"),
    (SPEED, changed(DEVICE, computation="5"), "found computation '5' of client 2"),
    (SPEED, changed(DEVICE, computation=[5]), "found computation a list of 1 of client 2"),
    (SPEED, changed(DEVICE, computation=5e-324), "found speeds of .* inf"),
    (SPEED, changed(PHONE), "found active, inactive, finish_time of client 1"),
    (RATE, changed(DEVICE, communication=1e306), r"found 10 to 1e\+306, where a 1 means 1000"),
    (SPEED, pickle.dumps({1: DEVICE, "1": DEVICE}), "client 1 as a number and as a text"),
    (SPEED, pickle.dumps({"\x1b[2J": DEVICE}), r"found client '\\x1b\[2J' in f"),
    (SPEED, pickle.dumps({"x" * 81: DEVICE}), r"found client 'x{76}\.\.\. in f"),
    (SPEED, pickle.dumps({1.0: DEVICE}), "found client 1.0 in f"),
    (SPEED, pickle.dumps({1: {"\n": 1.0, 2: 3.0}}), r"found '\\n', 2 of client 1 in f"),
    (SPEED, pickle.dumps({}), "found a dict of 0"),
    (SPEED, pickle.dumps([1, 2]), "found a list of 2"),
    (SPEED, pickle.dumps({1: 5.0}), "found 5.0 for client 1"),
    (AWAY, changed(DEVICE), "found computation, communication of client 1"),
    (AWAY, changed(PHONE, active=[1]), "client 2: found a list of 1 active and a list of 2 in"),
    (AWAY, changed(PHONE, active=7), "client 2: found 7 active"),
    (AWAY, changed(PHONE, finish_time=0), "client 2: found finish_time 0"),
    (AWAY, changed(PHONE, active=[-1, 4]), "client 2: found active -1, inactive 2 after 0 s"),
    (AWAY, changed(PHONE, active=[4, 1]), "client 2: found active 4, inactive 2 after 0 s"),
    (AWAY, changed(PHONE, active=[1, 0]), "client 2: found active 0, inactive 5 after 1 s"),
    (AWAY, changed(PHONE, inactive=[2, float("nan")]), "client 2: found active 4, inactive nan"),
    (AWAY, changed({**PHONE, "active": [2, 5]}), "found no client that is ever active"),
]


def written(folder, key, content, **keys):
    """A scenario one key of which is a file of such content."""
    path = folder / ("link.up" if content == "" else "file.gz" if content[:1] == b"\x1f" else "f")
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    value = {"trace": str(path), **keys}
    for part in reversed(key.split(".")):
        value = {part: value}
    return {**star(), **value}


@pytest.mark.parametrize(("key", "content", "told"), REFUSED, ids=[t[:40] for *_, t in REFUSED])
def test_wrong_files_are_refused_at_their_key(tmp_path, key, content, told):
    with pytest.raises(InputError, match=rf"(?s){key}[\w.]*: .*{told}"):
        build(desim.load(written(tmp_path, key, content)))


@pytest.mark.parametrize(
    ("key", "content", "keys", "told"),
    [
        (RATE, pickle.dumps(capacity(2)), {"end": "hold"}, "end: found hold with a file of FedSc"),
        (RATE, NDT, {"offset": "random"}, "offset: found random with a file of NDT"),
        (RATE, "1\n", {"unit": "Mbit/s"}, "unit: found Mbit/s with a Mahimahi trace"),
        (RATE, "1\n", {"unit": "1e303 bit/s"}, r"found 0 to 1.2e\+07, where a 1 means 1e\+303"),
        (RATE, "1\n", {"field": "a"}, "field: found 'a' with a Mahimahi trace"),
        (RATE, pickle.dumps(capacity(2)), {"field": "7"}, "field: found '7'; allowed: 1, 2"),
        (SPEED, pickle.dumps(capacity(2)), {"unit": "/s"}, "unit: found /s with FedScale's"),
        (SPEED, pickle.dumps(capacity(2)), {"order": "time"}, "order: found time with FedScale's"),
        (WAY, NDT, {"unit": "Mbit/s"}, "found 'Mbit/s'; allowed: a unit such as ms, or a value"),
        (
            WAY,
            NDT,
            {"field": "a.MinRTTs"},
            "field: found 'a.MinRTTs'; .* did you mean 'a.MinRTT'",
        ),
        (LOSS, NDT, {"field": "loss"}, "loss: field: found 'loss'; allowed: id, date, a.Mean"),
        (LOSS, NDT, {"unit": "percent"}, "found 'percent'"),
    ],
)
def test_keys_that_do_not_fit_a_file_are_refused(tmp_path, key, content, keys, told):
    with pytest.raises(InputError, match=told):
        build(desim.load(written(tmp_path, key, content, **keys)))


def test_percentages_are_shares_of_a_hundred(tmp_path):
    said = written(tmp_path, LOSS, "LossRate\n1\n3\n", unit="%")
    assert desim.load(said).network.link.losses == (pytest.approx(0.02), pytest.approx(0.02))


def test_a_file_that_is_written_again_is_read_again(tmp_path):
    path = mahimahi(tmp_path / "f", [1])
    first = trace_formats.deliveries(path, (), 1.0, **WAYS).samples
    mahimahi(path, [1, 2, 2])
    assert trace_formats.deliveries(path, (), 1.0, **WAYS).samples.shape != first.shape
    path.write_text("time,a\n0,1\n")
    assert trace_formats.format_of(path) == "table"


def test_the_list_names_formats_keys_and_licences():
    lines = listed("traces")
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 101
    for word in ("Mahimahi", "network.link.latency", "CC0", "Apache-2.0", "client_behave_trace"):
        assert word in text
    keys = {word.strip(":") for word in text.split() if word.startswith(("network.", "compute."))}
    assert all(one.split(".")[1] in ("link", "uplink", "downlink", "speed", "topology",
                                     "latency_matrix") for one in keys)  # fmt: skip
    assert any("traces" in line and "FedScale" in line for line in overview())
