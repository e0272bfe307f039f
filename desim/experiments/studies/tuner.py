"""The section of a study file that makes it a tuner's: what is looked for, over which keys."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, PlainSerializer, PlainValidator
from pydantic import model_validator as together

from desim import units
from desim.errors import refusal
from desim.experiments.studies import varied
from desim.experiments.studies.varied import Range, Vary
from desim.fields import Count, Flag, Strict, Whole
from desim.fields.numbers import MAX_WHOLE, number, positive, whole

SAMPLERS = ("random", "grid", "tpe", "cmaes", "nsga2")
LEARNING = ("tpe", "cmaes", "nsga2")  # samplers of Optuna
SECRET = 1 << 48  # seeds below can all be tried
DRAWN = "none, so that it is drawn, or one from 2^48 on: it tells how many runs there were"
LARGEST_SEED = 2**32 - 1  # of their random numbers
SPENT = ("time", "bytes", "rounds", "epsilon")
LAWS = ("geometric", "logarithmic", "poisson")
READ = {"time": units.seconds, "bytes": units.size, "rounds": positive, "epsilon": positive}


def _target(value: object) -> dict[str, float]:
    found = varied.targets(value)
    if len(found) != 1 or len(next(iter(found.values()))) != 1:
        raise ValueError(refusal(value, "one metric with one value, as in {accuracy: 0.93}"))
    return {name: values[0] for name, values in found.items()}


def _least(value: object) -> tuple[str, ...]:
    several = tuple(value) if isinstance(value, list | tuple) else (value,)
    for one in several:
        if one not in SPENT:
            raise ValueError(refusal(one, f"{', '.join(SPENT)}, or a list of them", SPENT))
    if not several or len(set(several)) < len(several):
        raise ValueError(refusal(value, f"one or several of {', '.join(SPENT)}, each once"))
    return several


def _limits(value: object) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise ValueError(refusal(value, "a mapping such as {epsilon: 3, bytes: 10 MB}"))
    found = {}
    for name, limit in value.items():
        if name not in READ:
            raise ValueError(refusal(name, ", ".join(SPENT), SPENT))
        try:
            found[name] = positive(READ[name](limit))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return found


def _seeds(value: object) -> tuple[int, ...]:
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    return tuple(whole(one, 0) for one in varied.expanded(value))


def _cap(value: object) -> float | Literal[False]:
    if value is False:
        return False
    return number(value, "false, or a number >= 1", lambda x: x >= 1.0)


def _mean(value: object) -> float:
    return number(value, f"a number above 1, at most {varied.MOST}", lambda x: 1 < x <= varied.MOST)


class Charge(Strict):
    """The law of the number of runs of which the best is released, so that its price is known."""

    examples = {"law": "geometric", "mean": 20}

    law: Literal["geometric", "logarithmic", "poisson"]
    """of how many candidates are played: geometric (Liu and Talwar 2019), logarithmic or poisson
    (Papernot and Steinke 2022)"""
    mean: Annotated[float, PlainValidator(_mean)]
    """of that number"""


class Tune(Strict):
    """What `desim tune` looks for: the least of something until a target, over keys that vary."""

    examples = {
        "vary": {
            "policy": ["all", {"quorum": 8}],
            "algorithm.rho": {"log_uniform": [0.1, 10]},
            "algorithm.local.epochs": [1, 2, 5, 10],
        },
        "until": {"accuracy": 0.93}, "least": ["time", "epsilon"],
        "limits": {"epsilon": 3, "bytes": "10 MB"}, "seeds": "0..9", "cap": 4, "runs": 200,
    }  # fmt: skip

    vary: Annotated[
        Vary,
        PlainValidator(varied.vary),
        PlainSerializer(
            lambda found: {k: v.plain() if isinstance(v, Range) else v for k, v in found.items()}
        ),
    ]
    """dotted keys, each with a list of values or a range: uniform, log_uniform or integer [a, b]"""
    until: Annotated[dict[str, float], PlainValidator(_target)]
    """the target: a metric and its value"""
    least: Annotated[tuple[str, ...], PlainValidator(_least)] = ("time",)
    """what is to be small when the target is met, time, bytes, rounds or epsilon; of several the
    front: candidates that no other one beats in all of them"""
    limits: Annotated[dict[str, float], PlainValidator(_limits)] = {}
    """a run that has spent more of these when the target is met counts as one that never met it"""
    seeds: Annotated[tuple[int, ...], PlainValidator(_seeds)] = tuple(range(10))
    """seeds that all candidates meet, in this order: one, a list, or a range such as 0..9"""
    runs: Count | None = None
    """at most so many runs (but for those that were cut off and may win), the fresh ones aside;
    default: 200"""
    sampler: Literal["random", "grid", "tpe", "cmaes", "nsga2"] = "random"
    """random, grid (all combinations), or one of Optuna's that learn: tpe, cmaes, nsga2"""
    seed: Whole | None = None
    """seed of the sampler; default: 0, but with charge drawn by the operating system and stored, as
    nobody may know how many runs there were"""
    batch: Count = 10
    """how many candidates are proposed together and race each other, whatever the workers"""
    race: Flag = True
    """drop a candidate as soon as a test over the seeds so far says it is worse than another"""
    cap: Annotated[float | Literal[False], PlainValidator(_cap)] = Field(default=4.0)
    """a run ends at so many times what the best took on its seed, where it can win no more; false:
    never"""
    fresh: Whole | None = None
    """on how many further seeds the best is played again; default: as many as there are seeds"""
    charge: Charge | None = None
    """the law of how many runs there are, for an epsilon of releasing the best of them; default:
    tuning is not charged"""

    @together(mode="after")
    def _fits(self) -> "Tune":
        if self.sampler == "grid":
            for key, one in self.vary.items():
                if isinstance(one, Range) and one.kind != "integer":
                    raise ValueError(
                        f"sampler: found grid with a range, vary.{key}; allowed: lists of values"
                    )
                if isinstance(one, Range) and one.high - one.low >= varied.MOST:
                    most = f"ranges of at most {varied.MOST} numbers"
                    raise ValueError(
                        f"sampler: found grid, and more in vary.{key}; allowed: {most}"
                    )
        if self.sampler in LEARNING and (self.seed or 0) > LARGEST_SEED:
            allowed = f"at most {LARGEST_SEED} with {self.sampler}"
            raise ValueError(f"seed: {refusal(self.seed, allowed)}")
        if self.fresh_seeds and max(self.fresh_seeds) > MAX_WHOLE:
            raise ValueError(f"seeds: found {max(self.seeds)}, beyond which no seeds are left for "
                             "fresh runs; allowed: smaller ones, or fresh: 0")  # fmt: skip
        if self.sampler == "cmaes" and len(self.least) > 1:
            raise ValueError("sampler: found cmaes, which looks for one; allowed with several: "
                             "random, grid, tpe, nsga2")  # fmt: skip
        if self.charge is not None:
            self._check_charge()
        elif self.budget < len(self.seeds):
            allowed = f"at least {len(self.seeds)}, one candidate on all seeds"
            raise ValueError(f"runs: {refusal(self.budget, allowed)}")
        return self

    def _check_charge(self) -> None:
        """ValueError where the theorems about the best of a random number of runs say nothing."""
        written = self.model_fields_set.__contains__
        wrong = {
            "sampler": (self.sampler != "random", self.sampler, "random: candidates drawn alike"),
            "runs": (self.runs is not None, self.runs, "none: the law draws how many"),
            "least": (len(self.least) > 1, list(self.least), "one: one candidate is released"),
            "seeds": (len(self.seeds) > 1, f"{len(self.seeds)} seeds", "one: the first run's"),
            "fresh": (bool(self.fresh), self.fresh, "0: more runs are more releases"),
            "race": (self.race and written("race"), True, "false: no run looks at another"),
            "seed": (self.seed is not None and self.seed < SECRET, self.seed, DRAWN),
            "cap": (self.cap and written("cap"), self.cap, "false: no run looks at another"),
        }
        for key, (found, value, allowed) in wrong.items():
            if found:
                raise ValueError(f"{key}: {refusal(value, f'with charge {allowed}')}")

    @property
    def target(self) -> tuple[str, float]:
        """The metric and its value."""
        return next(iter(self.until.items()))

    @property
    def budget(self) -> int:
        """How many runs may be asked for before candidates end; charged: no such number."""
        return 200 if self.runs is None else self.runs

    @property
    def fresh_seeds(self) -> tuple[int, ...]:
        """Seeds that no candidate was chosen by: the next ones after the largest."""
        if self.charge is not None:
            return ()
        wanted = len(self.seeds) if self.fresh is None else self.fresh
        return tuple(range(max(self.seeds) + 1, max(self.seeds) + 1 + wanted))
