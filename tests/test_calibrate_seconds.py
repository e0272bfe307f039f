"""`desim calibrate`: what links and devices are comes back out of what they made of messages."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from mutant import mutant

import desim
from desim.deployments.measuring import fitted_laws, lines, misfit_profiles, samples
from desim.errors import InputError
from desim.interface.cli import main
from desim.scenario.sections.links import Tcp

BASE = {
    "name": "small",
    "problem": {
        "agents": 2,
        "data": {"source": "synthetic", "kind": "classification", "rows": 8, "dim": 4},
        "loss": "logistic",
        "regularizer": {"l2": 0.1},
    },
    "algorithm": {"name": "fed-plt", "rho": 1.0, "local": {"solver": "gradient", "epochs": 2}},
    "network": {
        "link": {"latency": "10 ms", "bandwidth": "1 Mbit/s", "jitter": {"lognormal": 0.1}}
    },
    "compute": {"speed": "1000 /s"},
    "observe": {"metrics": []},
    "stop": {"rounds": 16},
}

NO_MESSAGES = pd.DataFrame()
NO_WORK = pd.DataFrame({"agent": [], "work": [], "seconds": []})


def played(out=None, *, dim=4, rows=8, agents=2, **parts):
    data = {**BASE["problem"]["data"], "dim": dim, "rows": rows}
    problem = {**BASE["problem"], "agents": agents, "data": data}
    return desim.run({**BASE, "problem": problem, **parts}, out)


@pytest.fixture(scope="module")
def pair():
    return played(), played(dim=600, rows=20)


@pytest.fixture
def call(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            main([str(one) for one in arguments])
        captured = capsys.readouterr()
        return end.value.code, captured.out, captured.err

    return call


def measured(seed=0, n=300, jitter=0.2, late=0):
    """Messages on a line of 20 ms and 10 Mbit/s, some of them late by chance."""
    draws = np.random.default_rng(seed)
    sizes = draws.choice([1e3, 4e4, 4e5], n)
    factor = np.exp(jitter * draws.standard_normal(n))
    seconds = 0.02 * factor + 8.0 * sizes / 1e7
    seconds[:late] += 0.5
    return sizes, seconds


def check_recovery(module, *, late=0):
    """Latency and rate within 5 %, and within what their standard errors say."""
    off = []
    for seed in range(12):
        sizes, seconds = measured(seed, late=late)
        fit = module.fitted(
            lambda at, bits=8.0 * sizes: at[0] + bits / at[1],
            seconds,
            np.array([seconds.min(), 1e7 / 3.0]),
        )
        apart = np.log(fit.values / [0.02, 1e7])
        assert np.abs(apart).max() < 0.05
        assert 0.15 < fit.spread < 0.25
        off.append(apart / fit.errors)
    # Of 24 standard normal numbers the sum of squares is within 9.9 and 45.6 in 99 % of cases.
    assert 9.9 < (np.array(off) ** 2).sum() < 45.6 or late


def test_a_line_comes_back_out_of_its_messages():
    check_recovery(fitted_laws)
    check_recovery(fitted_laws, late=20)


@pytest.mark.parametrize(
    ("right", "wrong", "late"),
    [
        ('loss="soft_l1"', 'loss="linear"', 20),
        ("np.diag(inverse @ (scores.T @ scores) @ inverse)", "np.diag(scores.T @ scores)", 0),
        (
            "spread = _deviation(residuals[much] / ",
            "spread = 2.0 * _deviation(residuals[much] / ",
            0,
        ),
    ],
)
def test_a_wrong_fit_is_noticed(right, wrong, late):
    with pytest.raises(AssertionError):
        check_recovery(mutant(fitted_laws, right, wrong), late=late)


def carried(tcp, latency, rate, sizes, pause, rounds=12, number=2):
    """A table of messages that lines of their own carry, noise-free, by the law of transport."""
    begin, line = np.meshgrid(np.arange(rounds), np.arange(number * len(sizes)), indexing="ij")
    bits = 8.0 * np.repeat(sizes, number)[line]
    begin = begin * (pause + 6.0 * latency + bits / rate) + 1e-4 * line
    sent = fitted_laws.Sent(begin.ravel(), bits.ravel(), line.ravel())
    (law,) = fitted_laws.by_tcp(tcp, 0.0, (tcp.connection,))
    table = {"sender": sent.line, "receiver": -1, "source": 0, "bytes": sent.bits / 8.0}
    seconds = law.seconds(latency, rate, sent)
    return law, pd.DataFrame(
        {**table, "begin": sent.begin, "seconds": seconds, "sending": np.nan, "attempts": 1.0}
    )


def check_few_that_tell(module):
    """Of 48 messages of each size but four tell: the others meet a window that is kept."""
    for latency, rate in ((0.02, 5e6), (0.04, 3e6)):
        law, table = carried(Tcp(), latency, rate, (1200, 48_000), 0.4)
        line = module.line_of("link", table, law, samples.EXACT)
        assert line.identified
        assert line.latency == pytest.approx(latency, rel=1e-4)
        assert line.rate == pytest.approx(rate, rel=1e-4)
        assert line.may_be(rate)


def test_few_messages_that_tell_a_rate_are_enough():
    check_few_that_tell(lines)


def test_a_parabola_around_the_nearest_minimum_is_noticed():
    right = "pairs_of(measured, starts(measured.thin))"
    wrong = "[measured.fit(_start(measured.sent.bits, measured.seconds))]"
    with pytest.raises(AssertionError):
        check_few_that_tell(mutant(lines, right, wrong))


def check_rivals(line, law):
    """New connections with 20 and 48 kB: 90 ms with 6.2 Mbit/s, or 83 ms with 1.3 Mbit/s."""
    assert line.may_be(6.244e6)
    assert len(line.rates) == 2
    assert not line.identified
    some = fitted_laws.Sent(np.zeros(1), np.array([8.0 * line.telling.size]), np.zeros(1, np.int64))
    seconds = [float(law.seconds(*pair, some)[0]) for pair in line.pairs]
    assert max(seconds) > 1.05 * min(seconds)


def test_rates_that_fit_alike_are_told_with_the_message_that_tells(tmp_path):
    law, table = carried(Tcp(connection="new"), 0.0905, 6.244e6, (20_000, 48_000), 0.1, rounds=3)
    check_rivals(lines.line_of("link", table, law, samples.EXACT), law)
    from desim.deployments.measuring.calibration import of_samples

    made = of_samples(
        samples.Samples(table, NO_WORK, tcp=Tcp(connection="new"), floor=samples.EXACT), False
    )
    assert "link: its messages do not tell the bandwidth: fit alike: " in str(made)
    text = " ".join(made.fragment().replace("#", "").split())
    assert "Not told: fit alike: " in text
    assert "messages of 1 kB after a pause tell: they take" in text


def test_one_pair_of_several_is_noticed(monkeypatch):
    law, table = carried(Tcp(connection="new"), 0.0905, 6.244e6, (20_000, 48_000), 0.1, rounds=3)
    twin = mutant(
        misfit_profiles,
        "good = [one for off, one in near if",
        "good = [one for off, one in near[:1] if",
    )
    monkeypatch.setattr(lines, "pairs_of", twin.pairs_of)
    with pytest.raises(AssertionError):
        check_rivals(lines.line_of("link", table, law, samples.EXACT), law)


def check_intervals(module):
    """Of 60 logs with jitter, intervals of 95 % hold in 54 to 59 (by chance: 91 % of times)."""
    held = np.zeros(3)
    for seed in range(60):
        draws = np.random.default_rng(seed)
        bits = np.repeat([8e3, 8e5], 20)
        seconds = 0.02 * np.exp(0.2 * draws.standard_normal(40)) + bits / 1e7
        sent = fitted_laws.Sent(np.zeros(40), bits, np.zeros(40, np.int64))
        measured = module.Measured(fitted_laws.IDEAL, sent, seconds, 1e-6)
        found = module.profiled(measured, [measured.fit(np.array([0.02, 1e7]))])
        wide, spread = np.exp(1.96 * found.best.doubt), found.best.spread
        held += [
            any(low <= 0.02 <= high for low, high in found.latencies),
            any(low <= 1e7 <= high for low, high in found.rates),
            spread / wide <= 0.2 <= spread * wide,
        ]
        assert (seed + 1 - held <= 6).all()
    assert (held[:2] <= 59).all()


def test_intervals_hold_in_95_percent():
    check_intervals(misfit_profiles)


@pytest.mark.parametrize("wrong", ["0.2 * reach**2", "2.0 * reach**2"])
def test_intervals_that_hold_too_seldom_or_always_are_noticed(wrong):
    with pytest.raises(AssertionError):
        check_intervals(mutant(misfit_profiles, "0.5 * reach**2", wrong))


def test_a_device_that_does_not_tell_its_rate_has_that_of_all():
    """Agent 3 was sent messages of one size alone."""
    draws = np.random.default_rng(2)
    who = np.repeat(np.arange(4), 40)
    sizes = np.where(who < 3, draws.choice([1e3, 1e5], 160), 1e5)
    seconds = 0.02 * np.exp(0.05 * draws.standard_normal(160)) + 8.0 * sizes / 1e7
    table = {"sender": who, "receiver": -1, "source": 0, "bytes": sizes, "begin": np.nan}
    messages = pd.DataFrame({**table, "seconds": seconds, "sending": np.nan, "attempts": 1.0})
    made = lines.lines_of(samples.Samples(messages, NO_MESSAGES), apart=True)
    own = made.each[3, False]
    assert own.chosen == lines.OTHERS
    assert own.rate == made.pooled[0].rate
    assert own.latency == pytest.approx(0.02, rel=0.05)
    assert own.latencies[0][0] <= own.latency <= own.latencies[-1][1]


def check_runs(pair):
    made = desim.calibrate(pair)
    (line,) = made.lines.pooled
    assert line.name == "link"
    assert line.how == lines.MEASURED
    assert line.latency == pytest.approx(0.01, rel=0.05)
    assert line.rate == pytest.approx(1e6, rel=0.05)
    assert line.jitter == pytest.approx(0.1, rel=0.3)
    assert line.r2 > 0.9
    assert made.devices.speed == pytest.approx(1000.0, rel=0.05)
    assert made.devices.identified
    assert not made.one_by_one


def test_runs_tell_their_network_and_devices(pair):
    check_runs(pair)


def test_a_wrong_law_is_noticed(pair, monkeypatch):
    twin = mutant(fitted_laws, "latency + sent.bits / rate", "latency + sent.bits / rate / 8.0")
    monkeypatch.setattr(lines, "IDEAL", twin.IDEAL)
    monkeypatch.setattr(lines, "by_tcp", lambda *terms: iter(()))
    with pytest.raises(AssertionError):
        check_runs(pair)


@pytest.mark.slow
def test_the_file_is_a_network_that_scenarios_include(tmp_path, pair, call):
    folders = [tmp_path / name for name in "ab"]
    played(folders[0])
    played(folders[1], dim=600, rows=20)
    file = tmp_path / "networks" / "ours.yaml"
    code, out, _ = call("calibrate", *folders, "-o", file)
    assert code == 0
    assert out.splitlines()[0] == "lines (ideal)"
    text = file.read_text()
    assert "standard error" in text
    assert "R2 0.9" in text
    plain = {key: part for key, part in BASE.items() if key not in ("network", "compute")}
    again = desim.load({**plain, "network": "ours"}, folder=tmp_path)
    assert again.network.link.latency.a == pytest.approx(0.01, rel=0.05)
    assert again.network.link.bandwidth.a == pytest.approx(1e6, rel=0.05)
    assert again.compute.speed.a == pytest.approx(1000.0, rel=0.05)
    made = desim.run(again)
    assert made.status == "done"
    code, out, _ = call("calibrate", *folders)
    assert (code, out) == (0, text)


def test_one_size_of_messages_does_not_tell_a_rate(pair):
    made = desim.calibrate(pair[1])
    (line,) = made.lines.pooled
    assert line.how == lines.LOGGED  # the simulation logs how long a message takes to leave
    assert line.rate == pytest.approx(1e6, rel=1e-6)
    real = samples.of_run(pair[1])
    real.messages["sending"] = 0.0
    (line,) = lines.lines_of(real).pooled
    assert (line.how, line.rate) == (lines.LIMIT, np.inf)
    assert line.latency == pytest.approx(0.01 + 600 * 64 / 1e6, rel=0.05)
    assert line.least == pytest.approx(600 * 64 / line.latency, rel=0.05)
    from desim.deployments.measuring.calibration import of_samples

    text = of_samples(real, None).fragment()
    assert "does not tell a latency from a bandwidth" in text
    assert "bandwidth: inf" in text
    assert "desim calibrate RUN RUN" in str(of_samples(real, None))


@pytest.mark.parametrize("dim", [100, 4000])
def test_one_size_over_tcp_tells_what_the_wire_carries_besides(dim):
    """Headers, and what is waited for acknowledgements, are not taken for a slower line."""
    link = {**BASE["network"]["link"], "transport": "tcp"}
    (line,) = desim.calibrate(played(dim=dim, network={"link": link})).lines.pooled
    assert line.how == lines.LOGGED
    assert line.rate == pytest.approx(1e6, rel=1e-3)
    assert line.latency == pytest.approx(0.01, rel=0.05)


def test_a_transport_of_one_direction_is_told():
    link = BASE["network"]["link"]
    made = desim.calibrate(played(network={"link": link, "uplink": {"transport": "tcp"}}))
    assert "transport: tcp" in made.fragment()
    assert "one direction is ideal" in str(made)


def test_the_error_of_a_speed_knows_of_the_fixed_cost():
    """Speeds and a fixed cost of made up computations, 100 times: errors are as large as told."""
    off = []
    for seed in range(100):
        draws = np.random.default_rng(seed)
        work = np.repeat([40.0, 200.0], 100)
        seconds = (0.05 + work / 1000.0) * np.exp(0.02 * draws.standard_normal(200))
        table = pd.DataFrame({"agent": 0, "work": work, "seconds": seconds})
        found = fitted_laws.devices_of(samples.Samples(NO_MESSAGES, table))
        off.append(np.log(found.speed / 1000.0) / found.error)
    assert 0.8 < np.std(off) < 1.2


@pytest.mark.slow
def test_devices_and_lines_are_told_one_by_one_where_they_differ(tmp_path, call):
    network = {"link": {"latency": {"lognormal": ["20 ms", 0.8]}, "bandwidth": "1 Mbit/s"}}
    parts = {"network": network, "compute": {"speed": {"lognormal": ["1000 /s", 0.6]}}}
    runs = played(**parts), played(dim=600, **parts)
    made = desim.calibrate(runs)
    assert made.lines.differ
    assert made.one_by_one
    log = runs[0].events
    for (who, towards), line in made.lines.each.items():
        ends = (log["agent"] == who) if towards else (log["peer"] == who)
        seconds = log.loc[(log["kind"] == "deliver") & ends, "seconds"].median()
        assert line.latency == pytest.approx(seconds - 256 / 1e6, rel=1e-4)
        assert line.rate == pytest.approx(1e6, rel=1e-4)
    done = log[log["kind"] == "compute"].groupby("agent")["seconds"].median()
    np.testing.assert_allclose(made.devices.speeds, 16.0 / done, rtol=1e-9)
    path = made.write(tmp_path / "networks" / "own.yaml")
    plain = {key: part for key, part in BASE.items() if key not in ("network", "compute")}
    again = desim.run({**plain, "network": str(path)})
    late = desim.clock_errors(runs[0], again)
    assert late.summary["max"].max() < 1e-3
    pooled = desim.calibrate(runs[0], apart=False)
    assert not pooled.lines.differ
    assert "lognormal" in pooled.fragment()


def test_speeds_that_change_are_drawn_every_round(tmp_path):
    run = played(
        compute={"speed": {"lognormal": ["1000 /s", 0.5]}, "redraw": "round"}, stop={"rounds": 60}
    )
    made = desim.calibrate(run)
    assert made.devices.varies
    assert "redraw: round" in made.fragment()
    # A median of sizes of 240 draws has a relative standard error of 1.17 / sqrt(240) = 7.5 %.
    assert made.devices.within == pytest.approx(0.5, rel=0.3)
    path = desim.calibrate(run, apart=True).write(tmp_path / "each.yaml")
    assert len((tmp_path / "each-speeds.csv").read_text().splitlines()) == 61
    plain = {key: part for key, part in BASE.items() if key not in ("network", "compute")}
    assert desim.run({**plain, "network": str(path)}).status == "done"


def test_losses_and_timeouts_have_intervals():
    network = {"link": {"latency": "10 ms", "loss": "10 %", "timeout": "200 ms"}}
    made = desim.calibrate(played(network=network, stop={"rounds": 60}))
    low, high = made.lines.interval
    # Four standard errors of a share of n draws.
    assert abs(made.lines.loss - 0.1) < 4.0 * np.sqrt(0.1 * 0.9 / made.lines.attempts)
    assert low < made.lines.loss < high
    assert made.lines.loss == made.lines.lost / made.lines.attempts
    assert made.lines.timeout == pytest.approx(0.2, rel=1e-6)
    assert "timeout: 200 ms" in made.fragment()


def lossy(share):
    """Messages of three sizes over TCP that loses 2 % of packets, of which so many are counted."""
    network = {
        "link": {"latency": "20 ms", "bandwidth": "5 Mbit/s", "transport": "tcp", "loss": "2 %"}
    }
    sizes = [(4, 20), (900, 30), (6000, 12)]
    found = [
        samples.of_run(played(dim=dim, agents=4, network=network, stop={"rounds": rounds}))
        for dim, rounds in sizes
    ]
    whole = found[0].and_these(found[1]).and_these(found[2])
    return replace(whole, packets=10_000, packets_lost=int(10_000 * share))


@pytest.mark.slow
def test_a_rate_is_told_behind_packets_that_were_lost():
    known = lossy(0.02)
    made = lines.lines_of(replace(known, messages=known.messages.assign(sending=0.0)))
    (line,) = made.pooled
    assert made.law.written == "tcp"
    assert not made.differ
    assert made.packets
    assert made.loss == 0.02
    # The latency is that of most messages; the rate has to be found behind losses.
    assert line.latency == pytest.approx(0.02, rel=0.02)
    assert line.rate == pytest.approx(5e6, rel=0.05)
    up = known.messages[known.messages["receiver"] < 0]
    wrong = lines.lines_of(replace(known, messages=up, packets_lost=0), apart=False).pooled
    assert min(one.rate for one in wrong) < 0.95 * 5e6


@pytest.mark.parametrize(("lost", "n"), [*itertools.product((0, 3, 20), (20, 200))])
def test_the_interval_of_a_share_is_exact(lost, n):
    """Its ends are where the chance of as many losses, or as few, is 2.5 %."""
    from scipy import stats

    _, (low, high) = lines.loss_share(lost, n)
    if lost:
        assert stats.binom.sf(lost - 1, n, low) == pytest.approx(0.025)
    if lost < n:
        assert stats.binom.cdf(lost, n, high) == pytest.approx(0.025)


def check_devices(module, tmp_path):
    """A fixed cost of 5 ms and 2000 gradients per second, told by works of several sizes."""
    draws = np.random.default_rng(1)
    rows = ["agent,work,ms"]
    for agent, factor in enumerate((1.0, 1.0, 4.0)):
        for work in draws.choice([10, 100, 400], 40):
            noise = np.exp(0.02 * draws.standard_normal())
            rows.append(f"{agent},{work},{1e3 * (0.005 + factor * work / 2000) * noise}")
    (tmp_path / "work.csv").write_text("\n".join(rows))
    found = module.devices_of(samples.of_files(None, tmp_path / "work.csv"))
    assert found.overhead == pytest.approx(0.005, rel=0.05)
    np.testing.assert_allclose(found.speeds, [2000, 2000, 500], rtol=0.05)
    assert found.identified
    assert found.differ


def test_a_fixed_cost_is_told_from_that_of_rows(tmp_path):
    check_devices(fitted_laws, tmp_path)
    made = desim.calibrate(computations=tmp_path / "work.csv")
    assert "network: {}" in made.fragment()
    with pytest.raises(AssertionError):
        check_devices(mutant(fitted_laws, "at[0] + work / at[1:]", "work / at[1:]"), tmp_path)


def test_what_cannot_be_measured_is_refused_in_words(tmp_path, call):
    def refused(*arguments):
        code, out, err = call("calibrate", *arguments)
        assert (code, out) == (2, "")
        return err.strip()

    assert refused() == ("calibrate: found nothing; allowed: runs, or csv files of measurements")
    assert "not a run directory" in refused(tmp_path)
    file = tmp_path / "some.csv"
    file.write_text("size,duration\n1,2\n")
    assert refused("--messages", file) == (
        f"{file}: found the columns size, duration; allowed: seconds, s, ms, us, bytes, bits, kB, "
        "sender, receiver, begin, attempts, with one each for bytes and seconds"
    )
    file.write_text("bytes,seconds\n100,-1\n")
    assert refused("--messages", file) == (
        f"{file}, line 2: seconds: found '-1'; allowed: a number >= 0"
    )
    file.write_text("bytes,seconds,sender\n\n100,1,0.5\n")
    assert refused("--messages", file) == (
        f"{file}, line 3: sender: found '0.5'; allowed: an agent's number, or -1 or coordinator"
    )
    file.write_text("work,seconds,agent\n100,1,1e30\n")
    assert "line 2: agent: found '1e30'; allowed: an agent" in refused("--computations", file)
    file.write_text("bytes,seconds\n1,2\n1,2,3\n")
    assert refused("--messages", file).endswith(
        "line 3: found 3 values; allowed: 2, as in the head"
    )
    file.write_text("bytes,seconds\n")
    assert "found no row below the head" in refused("--messages", file)
    file.write_text("bytes,seconds\n100,1\n")
    assert "found 1 messages and 0 computations; allowed: 5 messages" in refused("--messages", file)
    file.write_bytes(b"\xff\xfe\x00")
    assert "some.csv" in refused("--messages", file)
    assert "no.csv" in refused("--computations", tmp_path / "no.csv")
    with pytest.raises(InputError, match="calibrate: needs send and deliver events"):
        desim.calibrate(played(log="rounds"))


@pytest.mark.parametrize("what", ["messages", "computations"])
def test_seconds_that_fall_with_size_fit_nothing_and_say_so(tmp_path, call, what):
    """Without warnings of arithmetic, which this suite takes for errors."""
    size = {"messages": "bytes", "computations": "work"}[what]
    rows = "\n".join(f"{1000 * (i + 1)},{1 / (i + 1)}" for i in range(50))
    (tmp_path / "odd.csv").write_text(f"{size},seconds\n{rows}\n")
    code, out, err = call("calibrate", f"--{what}", tmp_path / "odd.csv")
    assert (code, err) == (0, "")
    words = {"messages": "does not tell a bandwidth", "computations": "tells no fixed cost"}
    assert words[what] in out
    assert "inf" not in out.replace("bandwidth: inf", "")
    assert "nan" not in out


def test_a_csv_of_messages_in_other_units(tmp_path):
    sizes, seconds = measured(late=5)
    pairs = zip(sizes / 1e3, seconds * 1e3, strict=True)
    text = "\n".join(["kB,ms,sender,receiver", *(f"{a},{b},3,coordinator" for a, b in pairs)])
    (tmp_path / "m.csv").write_text(text)
    made = desim.calibrate(messages=tmp_path / "m.csv")
    (line,) = made.lines.pooled
    assert line.latency == pytest.approx(0.02, rel=0.05)
    assert line.rate == pytest.approx(1e7, rel=0.05)
    assert made.devices is None
    assert made.frame["latency"].iloc[0] == line.latency
    assert "95 % intervals" in made._repr_html_()


def test_messages_that_take_as_long_whatever_their_size_tell_no_rate(tmp_path, recwarn):
    """On loopback 40 kB take as long as 1 kB: said as it is, and nothing divides by nothing."""
    draws = np.random.default_rng(3)
    rows = ["bytes,us,begin,sender,receiver"]
    rows += [f"{size},{20 * np.exp(0.4 * draws.standard_normal())},{0.1 * k},{k % 4},coordinator"
             for k, size in enumerate(draws.choice([1000, 40_000], 48))]  # fmt: skip
    (tmp_path / "m.csv").write_text("\n".join(rows))
    made = desim.calibrate(messages=tmp_path / "m.csv", apart=False)
    (line,) = made.lines.pooled
    assert line.how == lines.LIMIT
    assert "Those of 1 kB to 40 kB take about as long" in made.fragment()
    assert "larger ones do: desim calibrate RUN RUN" in str(made)
    assert not recwarn.list
