"""What a run came to, in words: how it ended, what it cost, what it spent and whom it waited for.

Every fact is given as far as the run has it: a killed run, one whose scenario cannot be read any
more, or one whose log leaves events out says so instead.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.agent_names import NETWORK, agent_named, listed, sites
from desim.amounts import NO_NOISE, amount, epsilon, measured_text, size
from desim.columns import Columns, Pieces, Words
from desim.errors import DesimError, show
from desim.runs.directory import SCENARIO, UNLISTED, written_by
from desim.runs.premises import shortly, stored, unrepeatable
from desim.runs.reading.energy import power_known
from desim.runs.reading.traffic import Keys, Occupation, Sums
from desim.runs.reading.waits import (
    CLOSERS,
    NOBODY,
    Unanswered,
    Untimely,
    closed,
    closers,
    instants,
    listening,
)

if TYPE_CHECKING:
    from desim.runs.run import Run

# The clock of a run in a line: one of real time has hosts, an error, and links.


def clock(manifest: Mapping[str, Any]) -> str:
    """What a manifest says of a real clock; empty where time is virtual."""
    stated = manifest.get("clock") or {}
    if stated.get("kind") != "real":
        return ""
    hosts, error = int(stated.get("hosts", 1)), float(stated.get("error", 0.0))
    where = "one machine" if hosts == 1 else f"{hosts} hosts, aligned to {1e3 * error:.3g} ms"
    links, refused = stated.get("links") or {}, int(stated.get("refused", 0))
    text = f"{links['lines']} " if "lines" in links else ""
    text += str(links.get("kind", "links unknown"))
    if "late" in links:
        text += f", packets at most {1e3 * float(links['late']):.3g} ms late"
    text += f", {links['dropped']} dropped by full queues" if links.get("dropped") else ""
    more = f"; {refused} connection{'s' * (refused != 1)} refused" if refused else ""
    return f"real, on {where}; {text}{more}"


# What a summary says of a log, gathered in one reading of it, piece by piece.

GLANCED = ["time", "kind", "agent", "peer", "round", "bytes", "seconds"]
SHORT = ["time", "kind", "bytes"]  # without who waited and computed


class Glance:
    """last: time s of the last event; counts: events by kind; bytes: delivered; agents: 1 + last.

    occupied: what agents did; closers: how often each closed a wait; hub: whether the coordinator
    waited; waited: (agent, for whom, s) of the pair with the longest waits in all, or None;
    unanswered: counts calls that were not answered in time, where that may be.
    """

    def __init__(
        self, pieces: Pieces, deep: bool = True, unanswered: Unanswered | Untimely | None = None
    ) -> None:
        self.last, self.bytes = 0.0, 0.0
        self.occupied, self.unanswered = Occupation(), unanswered
        self.counts: Counter[str] = Counter()
        self.closers: Counter[int] = Counter()
        self.hub = False
        self._pairs, self._waited = Keys(), Sums()
        self._arrived, self._last = Counter[bool](), Counter[bool]()  # by: whether at coordinator
        if deep:

            def counted(number: int) -> Columns:
                self._count(log := pieces[number])
                return log

            for log in instants(Pieces(np.diff(pieces.first).tolist(), counted)):
                self._wait(log)
        else:
            for log in pieces:
                self._count(log)

    def _count(self, log: Columns) -> None:
        kind: Words = log["kind"]
        self.last = max(self.last, float(log["time"].max(initial=0.0)))
        codes, counts = np.unique(kind.codes, return_counts=True)
        self.counts.update({kind.words[k]: int(n) for k, n in zip(codes, counts, strict=True)})
        self.bytes += float(log["bytes"][kind.equal("deliver")].sum())
        if "agent" in log:
            self.occupied.add(log)
            if self.unanswered is not None:
                deque(self.unanswered.at_collections(log), maxlen=0)

    def _wait(self, log: Columns) -> None:
        rows, closer = closed(log), closers(log)
        agent, waited = rows["agent"], rows["seconds"]
        who, counts = np.unique(closer, return_counts=True)
        self.closers.update(dict(zip(who.tolist(), counts.tolist(), strict=True)))
        self.hub = self.hub or bool((agent < 0).any())
        arrived = log["kind"].equal("deliver")
        to, time = log["agent"][arrived], log["time"][arrived]
        last = np.isin(to + 1j * time, agent + 1j * rows["time"])  # of one agent and instant
        for centre in (True, False):
            self._arrived[centre] += int(((to < 0) == centre).sum())
            self._last[centre] += int((((to < 0) == centre) & last).sum())
        between = (agent >= 0) & (closer >= 0)
        pair = agent[between].astype(np.int64) << 32 | closer[between]
        self._waited.add(self._pairs.of(pair), waited[between])

    @property
    def alike(self) -> bool:
        """Whether all that was waited for came together each time, so that nobody was last."""
        closed = self.closers.total()
        together = closed < self._arrived[self.hub] == self._last[self.hub]
        return together and min(self.closers, default=-1) >= 0

    @property
    def waited(self) -> tuple[int, int, float] | None:
        """The agent, for whom, and s, where most time passed in waiting; None without any."""
        pairs, places = self._pairs.sorted
        spent = self._waited.at(places)
        if not spent.max(initial=0.0) > 0.0:
            return None
        most = int(spent.argmax())
        one, other = divmod(int(pairs[most]), 1 << 32)
        return one, other, float(spent[most])


# The measured speed of a step, in words: a number means nothing without its machine.


# The facts, one after the other.

ALIKE = "all agents alike"
OS_NOISE = "drawn from the operating system: no seed has it, and no simulation its bits"
SEEN = 0.05  # s of compiling that are worth a word
MANY = 2_000_000  # events above which whom a run waited for is read on demand only
Facts = list[tuple[str, str]]


def facts(run: "Run", quick: bool = False) -> Facts:
    """What is known of a run, as pairs of a name and a text.

    quick: leave out what takes seconds where a run has millions of events.
    """
    manifest, level = run.manifest, run.level
    counted = sum(n for name, n in manifest.get("counts", {}).items() if "bytes" not in name)
    deep = not quick or counted < MANY
    columns = GLANCED if deep else SHORT
    read = deep or not manifest.get("counts")
    seen = Glance(run.store.pieces("events", columns), deep, listening(run)) if read else None
    pairs = [("stored in", str(run.directory))] if run.directory else []
    pairs += [("version", text)] if (text := written_by(manifest)) else []
    pairs += [("unchecked", text)] if (text := run.store.unchecked) == UNLISTED else []
    pairs += [("ended", manifest["reason"])] if manifest.get("reason") else []
    if not run.written and run.directory is not None:  # on which some of what follows rests
        missing = not (run.directory / SCENARIO).is_file()
        why = "is missing" if missing else "cannot be read, or has changed since the run"
        pairs.append(("scenario", f"not known: {SCENARIO} {why}"))
    why = f" ({manifest['why']})" if manifest.get("why") else ""
    pairs += [("engine", f"{manifest.get('engine', '')}{why}")]
    pairs += [("measured", text)] if (text := measured_text(run.written.get("compute", {}))) else []
    pairs += [("sites", listed(names))] if (names := sites(manifest)) else []
    pairs += [("clock", text)] if (text := clock(manifest)) else []
    name = "real time" if text else "virtual time"
    pairs += [(name, _times(run, seen)), ("messages", _messages(run, seen, level))]
    pairs += [("energy", text)] if deep and (text := consumption(run)) else []
    pairs += [("batteries", text)] if deep and (text := run.exhaustion) else []
    pairs += [*_releases(run), *(_privacy(run) if deep else ()), *_metrics(run)]
    if level == "rounds":
        pairs += [("not kept", "messages, work, and all but the first release without noise")]
    elif deep and seen is not None:
        pairs += _waits(run, seen)
        if seen.unanswered is not None and (text := seen.unanswered.sentence(sites(manifest))):
            pairs.append(("unheard", text))
        pairs += _busy(run, seen)
    if not deep:
        pairs.append(("", f"more than {MANY:,} events: desim show says which agents were slowest"))
    said = manifest.get("listeners", {})
    pairs += [(name, _entries(entries)) for name, entries in said.items() if entries]
    return [*pairs, *(("warning", text) for text in manifest.get("warnings", []))]


def _entries(said: Mapping[str, Any]) -> str:
    """What a listener said when the run was over; of lists, how long they are."""
    texts = []
    for key, one in said.items():
        text = (
            f"{one:.6g}" if isinstance(one, float) else one if isinstance(one, str) else show(one)
        )
        texts.append(f"{key} of {len(one)}" if isinstance(one, list | dict) else f"{key} {text}")
    return ", ".join(texts)


def _times(run: "Run", seen: Glance | None) -> str:
    manifest = run.manifest
    if "time" not in manifest:
        return f"{seen.last if seen else 0.0:.6g} s at the last event that was stored"
    text = f"{manifest['time']:.6g} s, {manifest['rounds']} rounds"
    compiling = float(manifest.get("compile_seconds", 0.0))
    text += f"; wall clock {manifest['wall_seconds'] - compiling:.3g} s"
    text += f", after compiling for {compiling:.3g} s" if compiling >= SEEN else ""
    plain = float(manifest.get("plain_seconds", 0.0))
    return text + (f", {plain:.3g} s of it plain Python" if plain >= SEEN else "")


def _messages(run: "Run", seen: Glance | None, level: str) -> str:
    """What was counted, or, where the run was killed before, what can be counted."""
    count = run.manifest.get("counts")
    if not count and level == "rounds":
        return "unknown: the run was killed, and its log leaves messages out"
    if not count and seen is not None:
        count = {**seen.counts, "deliver_bytes": seen.bytes}
    count = count or {}
    delivered = size(count.get("deliver_bytes", 0.0))
    text = f"{count.get('send', 0)} sent, {count.get('deliver', 0)} delivered ({delivered})"
    return text + (f", {count['lost']} lost" if count.get("lost") else "")


def consumption(run: "Run") -> str:
    """What its devices took, and which share for what; empty where nothing is known of it."""
    if not power_known(run):
        return ""
    joules = run.energy().groupby("cause", sort=False)["joules"].sum()
    whole = float(joules.sum())
    shares = (f"{name} {one / whole:.0%}" for name, one in joules.items() if one > 0.0)
    return f"{amount(whole, 'J')}: {', '.join(shares)}" if whole > 0.0 else amount(0.0, "J")


def _releases(run: "Run") -> Facts:
    found: Counter[str] = Counter()
    for rows in run.store.pieces("releases", ["mechanism"]):
        codes, counts = np.unique(rows["mechanism"].codes, return_counts=True)
        words = rows["mechanism"].words
        found.update({words[code]: int(n) for code, n in zip(codes, counts, strict=True)})
    masked = found.keys() & {"lattice-sum", "skellam-sum"}
    bare = "messages of keys, shares and masked numbers" if masked else "messages without noise"
    text = ", ".join(
        f"{n} {bare}" if mechanism == "none" else f"{n} with noise ({mechanism})"
        for mechanism, n in sorted(found.items(), key=lambda one: (-one[1], one[0]))
    )
    return [("releases", text)] if text else []


def _privacy(run: "Run") -> Facts:
    """One line: the largest epsilon of an agent in the scenario's terms, all of them named."""
    try:
        if stored(run).get("terms") is None:
            return [("privacy", NO_NOISE)] if bare(run) else []
        account = run.account()
    except DesimError as error:
        return [("privacy", f"not known: {str(error).splitlines()[0]}")]
    terms = account.terms + (f"; {unsure}" if (unsure := shortly(run)) else "")
    text = f"epsilon {epsilon(account.worst)} of the agent that spends most ({terms})"
    why = next((one for one in account.flags if one.startswith("infinite")), "")
    drawn = [("noise", OS_NOISE)] if unrepeatable(run.manifest) else []
    if of := run.manifest.get("privacy", {}).get("measured"):
        drawn.append(("metrics of", of))
    return [("privacy", f"{text}; {why}" if why and np.isinf(account.worst) else text), *drawn]


def bare(run: "Run") -> bool:
    """Whether something private was released without noise."""
    for rows in run.store.pieces("releases", ["mechanism", "scale", "sensitivity"]):
        silent = rows["mechanism"].equal("none") | (rows["scale"] == 0.0)
        if (silent & (rows["sensitivity"] != 0.0)).any():
            return True
    return False


def _metrics(run: "Run") -> Facts:
    """The last value of each metric of the network, in the order in which they come."""
    found: dict[str, str] = {}
    agents = len(run.manifest.get("rows", ()))
    for rows in run.store.pieces("metrics", ["metric", "agent", "value", "time", "round"]):
        of_all = np.flatnonzero(rows["agent"] == NETWORK)
        metric = rows["metric"].codes[of_all]
        codes, first = np.unique(metric, return_index=True)
        for code in codes[np.argsort(first)]:
            last, name = int(of_all[metric == code][-1]), rows["metric"].words[code]
            value, time = float(rows["value"][last]), float(rows["time"][last])
            text = f"{value:.6g}" if np.isfinite(value) else "not finite"
            if name == "loss" and agents > 1 and np.isfinite(value):
                text += f", {value / agents:.4g} an agent"
            found[name] = f"{text} (measured at {time:.6g} s, round {rows['round'][last]})"
    return list(found.items())


def _waits(run: "Run", seen: Glance) -> Iterator[tuple[str, str]]:
    """The three most frequent closers of collections, or of the waits of a graph's agents."""
    unit = "rounds" if seen.hub else "waits"
    if seen.alike:
        yield "slowest", f"none: {ALIKE}"
        return
    whole = sum(seen.closers.values())
    often = sorted(seen.closers.items(), key=lambda one: (-one[1], one[0]))[:3]
    closers = []
    for who, number in often:
        ended = "nobody had to wait" if who == NOBODY else f"ended by {CLOSERS.get(who)}"
        ended = f"{agent_named(run.manifest, who)}, last" if who >= 0 else ended
        closers.append(f"{ended} in {number / whole:.0%} of {unit}")
    if closers:
        rest = [text.removesuffix(f" of {unit}").replace(", last", "") for text in closers[1:]]
        yield "slowest" if often[0][0] >= 0 else "waiting", "; ".join([closers[0], *rest])
    if seen.waited is not None:
        one, other = (agent_named(run.manifest, agent) for agent in seen.waited[:2])
        yield "longest", f"{one} for {other}, {seen.waited[2]:.4g} s in all"


def _busy(run: "Run", seen: Glance) -> Iterator[tuple[str, str]]:
    """Which share of the run agents computed, done or in vain: on average, who least and most."""
    end = float(run.manifest.get("time", seen.last))
    if not seen.counts["compute"] or end <= 0.0:
        return
    did = seen.occupied
    done, vain = (did.seconds[kind].at(did.agents) for kind in ("compute", "abort"))
    share = (done + vain + did.cut(end)) / end
    share = share[did.agents < run.manifest.get("edges", np.inf)]  # edges of a tree do not compute
    share = np.round(share, 9)  # sums of equal times differ in their last bits
    text = f"{share.mean():.0%} of the time"
    text += f" ({vain.sum() / share.sum() / end:.0%} of it interrupted)" if vain.any() else ""
    if len(share) > 1 and share.min() == share.max():
        text += f", {ALIKE}"
    elif len(share) > 1:
        least, most = (int(one) for one in (share.argmin(), share.argmax()))
        low, high = (agent_named(run.manifest, one) for one in (least, most))
        text += f"; {low} least, {share[least]:.0%}, {high} most, {share[most]:.0%}"
    yield "computing", text
