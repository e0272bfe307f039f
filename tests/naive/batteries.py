"""Rounds of a coordinator that waits for all, on devices with batteries: one event after another.

Nothing of desim: at each event what has been taken since the last is subtracted from each battery.
"""

import heapq
import math
from dataclasses import dataclass, field


@dataclass
class Device:
    """Seconds of a computation; J; W; charger: W by time (a function), and when that changes."""

    compute: float
    capacity: float
    charge: float
    level: float
    idle: float
    computing: float
    charger: object
    changes: object
    up: bool = True
    radios: int = 0
    tail_until: float = -math.inf
    called: bool = False  # it has a call that is not done
    done_at: float = math.inf
    bytes_a_second: float = 0.0
    turns: list = field(default_factory=list)


def play(devices, network, rounds, back=lambda device: device.level):
    """[(time, agent, "down" or "up")] and the charges J at the end, and when that is, s.

    network: latency s, wire s of a message, size bytes, sent J/B, received J/B, radio W, tail s,
    tail_power W.
    """
    heap, number, now, done, round_ = [], 0, 0.0, 0, 1

    def plan(time, agent, what):
        nonlocal number
        number += 1
        heapq.heappush(heap, (time, number, agent, what))

    def call(time):
        for agent in range(len(devices)):
            arrives = time + network["latency"] + network["wire"]
            plan(arrives - network["wire"], agent, ("on", "received"))
            plan(arrives, agent, ("off", "received"))
            plan(arrives, agent, ("call", None))

    def begin(device):
        if device.up and device.called and device.done_at == math.inf:
            device.done_at = now + device.compute

    def taken(device):
        watts = network["radio"] if device.radios else 0.0
        if not device.radios and now < device.tail_until:
            watts += network["tail_power"]
        watts += device.bytes_a_second
        if device.up:
            watts += device.idle + (device.computing if device.done_at < math.inf else 0.0)
        return watts

    def crossing(device):
        net = device.charger(now) - taken(device)
        if device.up and net < 0.0:
            return now + max(device.charge, 0.0) / -net
        if not device.up and net > 0.0:
            return now + max(back(device) - device.charge, 0.0) / net
        return math.inf

    call(0.0)
    while round_ <= rounds:
        times = [heap[0][0] if heap else math.inf]
        for device in devices:
            tail = device.tail_until if device.tail_until > now else math.inf
            times += [crossing(device), device.done_at, device.changes(now), tail]
        then = min(times)
        for device in devices:
            net = device.charger(now) - taken(device)
            due = crossing(device) <= then * (1 + 1e-14)
            device.charge = min(device.charge + net * (then - now), device.capacity)
            device.due = due
        now = then
        for device in devices:
            if not device.due:
                continue
            device.up = not device.up
            device.turns.append(now)
            if device.up:
                begin(device)
            else:
                device.done_at = math.inf
                if now < device.tail_until:
                    device.tail_until = now
        for agent, device in enumerate(devices):
            if device.done_at <= now:
                device.called, device.done_at = False, math.inf
                plan(now, agent, ("on", "sent"))
                plan(now + network["wire"], agent, ("off", "sent"))
                plan(now + network["wire"] + network["latency"], agent, ("reply", None))
        while heap and heap[0][0] <= now:
            _, _, agent, (what, way) = heapq.heappop(heap)
            device = devices[agent]
            if what in ("on", "off"):
                sign = 1 if what == "on" else -1
                device.radios += sign
                device.bytes_a_second += sign * network[way] * network["size"] / network["wire"]
                device.tail_until = now + network["tail"] if device.radios == 0 else -math.inf
            elif what == "call":
                device.called = True
                begin(device)
            else:
                done += 1
                if done == len(devices):
                    done, round_ = 0, round_ + 1
                    if round_ <= rounds:
                        call(now)
    events = [
        (time, agent, "up" if k % 2 else "down")
        for agent, device in enumerate(devices)
        for k, time in enumerate(device.turns)
    ]
    return sorted(events), [device.charge for device in devices], now
