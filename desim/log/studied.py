"""What the columns of the tables of studies and comparisons mean, and their units."""

from collections.abc import Mapping

ROWS = {  # what one row of a table is
    "runs": "one run of a study; its other columns are the case's own keys and its measures",
    "comparison": "one measure of one run, or of runs that differ in their seeds only",
    "summary": "one measure of one case of a study, over its seeds",
    "comparisons": "one measure of one case against its counterpart, seed by seed",
    "ert": "one method on one problem until one target, over its seeds",
    "ecdf": "one method and value at which its distribution function rises",
    "profile": "one method and ratio to the best at which its profile, or its band, rises",
}

ESTIMATE = {  # over seeds
    "value": (
        "see unit",
        "the estimate; inf where half of the runs never met the target, or no epsilon is",
    ),
    "low": ("see unit", "lower end of the interval; nan where the seeds are too few for one"),
    "high": ("see unit", "upper end of the interval; nan where the seeds are too few for one"),
    "level": ("", "coverage of the interval"),
}
BAND = {  # around a curve
    "low": ("", "lower end of the pointwise band over seeds; nan where these are too few for one"),
    "high": ("", "upper end of the pointwise band over seeds; nan where these are too few for one"),
    "level": ESTIMATE["level"],
}

COLUMNS: Mapping[str, Mapping[str, tuple[str, str]]] = {  # table -> column -> unit, meaning
    "runs": {
        "case": ("", "number of the case"),
        "label": ("", "the case in words"),
        "seed": ("", "seed of the run"),
        "run": ("", "name of its directory: a hash of the resolved scenario"),
        "status": ("", "done, failed or stopped"),
        "reason": ("", "why it ended"),
    },
    "comparison": {
        "run": ("", "name of the run, or of the group of seeds"),
        "measure": ("", "what is estimated"),
        "unit": ("", "unit of value, low and high"),
        "statistic": ("", "value of one run; median of what is spent, mean of final values"),
        **ESTIMATE,
        "seeds": ("", "runs behind the estimate"),
        "never": ("", "of these never met the target"),
        "diverged": ("", "of these have no finite value at the end, and are not in the mean"),
    },
    "summary": {
        "case": ("", "number of the case"),
        "label": ("", "the case in words"),
        "measure": ("", "what is estimated"),
        "unit": ("", "unit of value, low and high"),
        "statistic": ("", "median of what is spent, mean of final values"),
        **ESTIMATE,
        "runs": ("", "runs of the case"),
        "failed": ("", "of these failed; they count until targets, as never where not met before"),
        "done": ("", "runs that are done, and behind the estimate"),
        "never": ("", "runs that never met the target, be it that they failed before"),
        "diverged": ("", "of these have no finite value at the end, and are not in the mean"),
        "settled": ("", "whether longer runs could not change the estimate"),
    },
    "comparisons": {
        "case": ("", "number of the case"),
        "label": ("", "the case in words"),
        "against": ("", "the case that it is held against"),
        "measure": ("", "what is compared"),
        "unit": ("", "unit of value, low and high; none for ratios"),
        "statistic": ("", "median ratio, or mean difference of final values"),
        "value": ("see unit", "the estimate over pairs of runs with one seed"),
        "low": ("see unit", "lower end of the interval; nan where the pairs are too few for one"),
        "high": ("see unit", "upper end of the interval; nan where the pairs are too few for one"),
        "level": ("", "coverage of the interval"),
        "pairs": (
            "",
            "seeds in which both runs count; a failed one does until targets, not at the end",
        ),
        "counted": ("", "pairs behind the estimate: one number is finite, and one is not 0"),
        "neither": ("", "pairs in which neither met the target"),
        "dropped": ("", "seeds in which one of them does not"),
        "wins": ("", "seeds in which the case is better"),
        "losses": ("", "seeds in which it is worse"),
        "ties": ("", "seeds in which neither is"),
        "p": ("", "two-sided sign test of this comparison alone"),
    },
    "ert": {
        "method": ("", "the method: the case's keys of algorithm, policy, participation, codec"),
        "problem": ("", "what it is given: the case's other keys"),
        "target": ("", "metric and value that are to be met"),
        "spent": ("", "what is counted: time, rounds, bytes or epsilon"),
        "unit": ("", "unit of value, low and high"),
        "runs": ("", "seeds, those that failed among them"),
        "met": ("", "of these met the target"),
        "rate": ("", "met / runs"),
        "value": (
            "see unit",
            "expected running time: all that was spent / met; inf for none that met it, nan where "
            "it is not known what a run that failed had spent",
        ),
        "low": ESTIMATE["low"],
        "high": ESTIMATE["high"],
        "level": ESTIMATE["level"],
        "best": ("", "the method with the least value on this problem and target"),
        "ratio": ("", "value / that of the best"),
        "ratio_low": ("", "lower end of its interval, from seeds drawn jointly for both"),
        "ratio_high": ("", "upper end of its interval"),
    },
    "ecdf": {
        "method": ("", "the method"),
        "value": ("see unit", "what is spent, with restarts, until a target"),
        "unit": ("", "unit of value"),
        "share": ("", "of problems, targets and simulated runs that have met it for at most that"),
        **BAND,
        "problems": ("", "pairs of problem and target"),
    },
    "profile": {
        "method": ("", "the method"),
        "ratio": ("", "expected running time over that of the best on the same problem"),
        "share": ("", "of problems and targets on which the method is within that ratio"),
        **BAND,
        "problems": ("", "pairs of problem and target"),
    },
}
