"""What the links themselves hold: one packet, packets a second, lateness; alone and beside others.

python -m analysis.fidelity.precision
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from analysis.fidelity.measuring import Flow, Message, play
from desim.deployments.namespaces import Line

RATE, LATENCY, SIZE = 2.5e7, 0.01, 1_000_000


@contextmanager
def beside(number: int) -> Iterator[None]:
    """So many processes that never wait."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def one_packet(latency: float, others: int) -> None:
    """How much longer than the law one packet takes, from send to read."""
    line = Line(latency, 1e9)
    with beside(others):
        times, _ = play([Flow({}, line, line, (Message(1),) * 200)], "reno")
    over = sorted(1e3 * (one.read - one.sent - latency) for one in times[0])
    shown = f"at least {over[0]:.2f} ms, median {over[100]:.2f}, 95 % below {over[190]:.2f}"
    print(f"one packet, {latency} s, {others} others: longer by {shown}", flush=True)


def many(links: int, others: int) -> None:
    """Links that all send: packets a second, lapses, and the last message against the law."""
    line = Line(LATENCY, RATE)
    with beside(others):
        flows = [Flow({}, line, line, (Message(SIZE),) * 4)] * links
        times, report = play(flows, "reno")
    packets = sum(one.packets for one in report.lines)
    took = max(one[-1].read for one in times) - min(one[0].sent for one in times)
    law = LATENCY + 8 * SIZE * 1500 / 1448 / RATE
    last = median(one[-1].read - one[-1].sent for one in times) / law
    lapses = f"{len(report.lapses)} lapses, the longest {1e3 * report.longest:.2f} ms"
    words = f"{packets / took:.0f} packets/s, {lapses}, last messages {last:.4f} of the law"
    print(f"{links} links, {others} others: {words}", flush=True)


def main() -> None:
    """Measure all."""
    for others in (0, 2):
        for latency in (0.0005, 0.01):
            one_packet(latency, others)
        for links in (1, 2, 4, 8, 12, 16):
            many(links, others)


if __name__ == "__main__":
    main()
