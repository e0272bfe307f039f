"""Single messages over the kernel's TCP: sizes x latencies x rates x what the connection is like.

    python -m analysis.fidelity.transfers [reno cubic bbr] [--repeats 1]

Rows of `measured/transfers.csv` are messages in the order in which their connection carried them,
so that a law that remembers can be replayed: `pause` s after the answer to the one before. A row
that is `disturbed` had links that were served late while it was under way.
"""

import argparse
import csv
import time
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

from analysis.fidelity.measuring import Flow, Message, Timed, lateness, play
from desim.deployments.namespaces import Line

FILE = Path(__file__).parent / "measured" / "transfers.csv"
LATENCIES = [0.0005, 0.005, 0.025, 0.075, 0.15]
RATES = [1e6, 1e7, 1e8]
SIZES = [1_000, 10_000, 100_000, 1_000_000, 10_000_000]
MIXED = (1, 100, 1, 10, 1000, 10, 100, 1, 1, 100, 100, 1000, 1, 10, 100, 10)
QUEUE = 1000
COLUMNS = (
    "flow repeat congestion state latency rate back loss queue position size sent seconds late "
    "window threshold timeout round_trip resent"
).split()


def messages(state: str, rate: float) -> list[tuple[Message, ...]]:
    """Connections of one state: each a sequence of messages."""
    fits = [size for size in SIZES if size * 8 / rate < 12]
    often = {1_000: 6, 10_000: 6, 100_000: 6, 1_000_000: 3, 10_000_000: 1 + (rate > 5e7)}
    if state == "new":
        return [(Message(size, new=True),) * min(often[size], 3) for size in fits]
    if state == "idle":
        same = [
            (Message(size), *(Message(size, idle=True),) * min(often[size], 4)) for size in fits
        ]
        return [*same, tuple(Message(1000 * k, idle=bool(n)) for n, k in enumerate(MIXED[:8]))]
    return [
        *((Message(size),) * often[size] for size in fits),
        tuple(Message(1000 * k) for k in MIXED),
    ]


def flows(states: Iterable[str], rates: Iterable[float], latencies: Iterable[float], **more: Any):
    """A flow for each sequence: its own link, so that none remembers another."""
    for state, rate, latency in product(states, rates, latencies):
        back = more.get("back", rate)
        for sequence in messages(state, rate):
            label = {"state": state, "latency": latency, "rate": rate, "back": back}
            label |= {"loss": more.get("loss", 0.0), "queue": QUEUE}
            loss = more.get("loss", 0.0)
            there, home = (
                Line(latency, rate, QUEUE, loss=loss),
                Line(latency, back, QUEUE, loss=loss),
            )
            yield Flow(label, there, home, sequence)


def waves(all_flows: list[Flow], most: float = 9000.0) -> list[list[Flow]]:
    """Flows that can go at the same time: fewer than `most` packets a second if all are busy."""
    parts: list[tuple[float, list[Flow]]] = []
    for flow in sorted(all_flows, key=lambda one: -duration(one)):
        load = 1.5 * flow.there.rate / 12000 * busy(flow)
        for k, (sum_, part) in enumerate(parts):
            alike = duration(part[0]) < 1.7 * duration(flow) + 5
            if sum_ + load <= most and alike and len(part) < 40:
                parts[k] = (sum_ + load, [*part, flow])
                break
        else:
            parts.append((load, [flow]))
    return [part for _, part in parts]


def duration(flow: Flow) -> float:
    """About how long a flow takes, in s."""
    each = 4 * flow.there.latency
    on = sum(one.size * 8 / flow.there.rate + each for one in flow.messages)
    return on + sum(1.5 + 3 * each for one in flow.messages if one.idle)


def busy(flow: Flow) -> float:
    """The share of its time in which a flow sends, about."""
    return sum(one.size * 8 / flow.there.rate for one in flow.messages) / duration(flow)


def rows(flow: Flow, number: int, times: list[Timed], late: list[float]) -> Iterable[list[Any]]:
    """The rows of one flow."""
    for position, (message, timed) in enumerate(zip(flow.messages, times, strict=False)):
        state = "first" if flow.label["state"] == "idle" and not message.idle else None
        row = {"flow": number, "position": position, "size": message.size, "late": late[position]}
        row |= flow.label | {"sent": timed.sent - times[0].sent}
        row |= {"seconds": timed.read - timed.sent, "window": timed.window, "resent": timed.resent}
        row |= {"threshold": min(timed.threshold, 1 << 20), "timeout": timed.timeout}
        row |= {"round_trip": timed.round_trip} | ({"state": state} if state else {})
        yield [f"{v:.7g}" if isinstance(v, float) else v for v in map(row.__getitem__, COLUMNS)]


def measure(all_flows: list[Flow], congestion: str, repeat: int, table: list[list[Any]]) -> None:
    """Play the flows in waves, and add their rows to the table."""
    for part in waves(all_flows):
        began = time.monotonic()
        times, report = play(part, congestion, seed=repeat)
        for flow, timed in zip(part, times, strict=True):
            flow.label.update(congestion=congestion, repeat=repeat)
            number = 1 + max((int(row[0]) for row in table), default=-1)
            late = [lateness(report, one) for one in timed]
            table += rows(flow, number, timed, late)
        took = time.monotonic() - began
        short = sum(len(t) < len(f.messages) for f, t in zip(part, times, strict=True))
        packets = sum(one.packets for one in report.lines)
        words = f"{congestion} {len(part)} flows {took:.0f} s, {packets / took:.0f} packets/s"
        print(
            f"{words}, longest lapse {1e3 * report.longest:.2f} ms, unfinished {short}", flush=True
        )


def disturbed(row: dict[str, str]) -> bool:
    """Whether the links were late by more than 1 ms or 2 % of a message, while it was under way."""
    return float(row["late"]) > min(max(5e-4, 0.02 * float(row["seconds"])), 1e-2)


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("congestion", nargs="*", default=["reno", "cubic", "bbr"])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("-o", type=Path, default=FILE)
    chosen = parser.parse_args()
    table: list[list[Any]] = []
    for repeat, congestion in product(range(chosen.repeats), chosen.congestion):
        every = [*flows(["busy", "new", "idle"], RATES, LATENCIES)]
        every += flows(["busy", "new", "idle"], [1e6], [0.005, 0.075], back=2e7)
        measure(every, congestion, repeat, table)
        store(table, chosen.o)


def store(table: list[list[Any]], path: Path) -> None:
    """Write the table, and say how much of it is disturbed."""
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *table])
    bad = sum(disturbed(dict(zip(COLUMNS, map(str, row), strict=True))) for row in table)
    print(f"{len(table)} messages, {bad} of them disturbed", flush=True)


if __name__ == "__main__":
    main()
