"""Which runs have a real clock, and whether two tell of the same scenario."""

from collections.abc import Iterator, Mapping, Sequence

from desim.runs.likeness import same_seed
from desim.runs.reading.labels import differing
from desim.runs.run import Run

FREE = {"name", "network", "compute", "observe", "log", "stop", "engine", "plugins"}
SHOWN = 4


def deployed(run: Run) -> bool:
    """Whether real processes have played the run, so that its seconds are those of a real clock."""
    clock = run.manifest.get("clock")
    return isinstance(clock, Mapping) and clock.get("kind") == "real"


def linked(run: Run) -> bool:
    """Whether messages of a deployed run had links, be they lines of one machine or a network."""
    clock = run.manifest.get("clock")
    links = clock.get("links") if isinstance(clock, Mapping) else None
    kind = str(links.get("kind", "")) if isinstance(links, Mapping) else ""
    return not kind.startswith("loopback")


def provisos(real: Run, simulated: Sequence[Run]) -> Iterator[str]:
    """Why a simulation of a deployed run cannot be as it was."""
    if not linked(real):
        text = "was played over loopback, without links: times of its messages and rounds, and to"
        yield f"{_who(real)} {text} targets, are not comparable with those of a network"
    drawn = [_noise(run) for run in (real, *simulated)]
    if drawn[0] == "os" and any(one != "os" for one in drawn[1:]):
        text = "drew its noise from the operating system, and the simulation from the seed"
        why = "models differ for that, and times to targets with them"
        yield f"{_who(real)} {text}: {why} (--set privacy.noise_seed=scenario for both)"


def _noise(run: Run) -> str:
    """Where the noise of a run came from."""
    privacy = run.manifest.get("privacy")
    return str(privacy.get("noise", "")) if isinstance(privacy, Mapping) else ""


def blur(run: Run) -> float:
    """By how much s the clocks of a deployed run's hosts may differ."""
    clock = run.manifest.get("clock")
    found = clock.get("error", 0.0) if isinstance(clock, Mapping) else 0.0
    return float(found) if isinstance(found, int | float) else 0.0


def unlike(real: Run, simulated: Run) -> list[str]:
    """In which ways the runs do not tell of the same scenario, but for its network and devices."""
    return list(_unlike(real, simulated))


def _unlike(real: Run, simulated: Run) -> Iterator[str]:
    places = differing([real, simulated])
    odd = [
        ".".join(place) for place in places
        if place[0] not in FREE or place[:2] == ("network", "topology")
    ]  # fmt: skip
    if odd:
        more = f" and {len(odd) - SHOWN} more" if len(odd) > SHOWN else ""
        names = f"{', '.join(odd[:SHOWN])}{more}"
        yield f"{_who(real)} and {_who(simulated)} are different scenarios: they differ in {names}"
    elif not same_seed(real, simulated):
        seeds = " and ".join(str(run.manifest.get("seed")) for run in (real, simulated))
        yield f"found seeds {seeds}; allowed: one seed, so that both are asked for the same"


def _who(run: Run) -> str:
    return str(run.directory or run.name)


def against(runs: Sequence[Run], asked: bool) -> tuple[Run, list[Run]] | None:
    """The real run and those that simulate it; None where none is real.

    asked: the first stands for a real one where none is deployed.
    """
    real = [run for run in runs if deployed(run)]
    if len(real) > 1 or (not real and not asked) or len(runs) < 2:
        return None
    first = real[0] if real else runs[0]
    return first, [run for run in runs if run is not first]
