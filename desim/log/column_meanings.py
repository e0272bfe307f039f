"""What each column of the tables of runs and studies means, and its unit, in one place.

`described` puts it into a DataFrame's `.attrs`; the reference of the run directory is made from it.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# The tables of studies and comparisons.

STUDY_ROWS = {  # what one row of a table is
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

STUDY_COLUMNS: Mapping[str, Mapping[str, tuple[str, str]]] = {  # table -> column -> unit, meaning
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


# The tables of a run.

ROWS = {  # what one row of a table is
    "events": "one event, in order of time",
    "metrics": "one value of one metric, of the whole network or of one agent",
    "releases": "one transmitted value that was computed from private data",
    "curve": "one value of one metric of the whole network",
    "delivered": "one message that arrived",
    "epsilon": "what one agent has spent once it has made a release; its last row is final",
    "pairwise": "what an observer has learnt of an agent; the last row of a pair is final",
    "critical_path": "one step of the chain that the run could not have been faster than",
    "waits": "one wait: a coordinator's collection, or an agent's for its neighbours",
    "utilisation": "one agent, from the start to the end of the run",
    "energy": "one agent, and one cause for which its device took energy",
    "clients": "one agent, with its own test rows, when they were measured",
    "fairness": "all clients, when they were measured",
    "charge": "one moment of one agent's battery: from it on, something else is taken of it",
    "links": "one directed link that was used",
    "staleness": "one thing heard and used: a reply in a collection, or a neighbour's message",
    "participation": "one agent, and the rounds in whose collections its replies are",
    "clock_messages": "one message of a real run and of one that simulates it",
    "clock_computations": "one computation of both runs",
    "clock_rounds": "one round of both runs",
    **STUDY_ROWS,
}

LAID = {  # of what is in a real and in a simulated run
    "real": ("s", "how long it took in reality"),
    "simulated": ("s", "how long it was simulated to take"),
    "error": ("s", "simulated - real"),
    "relative": ("", "error / real; nan where that has no meaning"),
}
LASTED = {"begin": ("s", "when it began"), "time": ("s", "when it ended")}
CARRIED = {
    "bytes": ("B", "size"),
    **LASTED,
    "attempts": ("", "how often it was sent"),
    "idle": ("s", "since the message before on its link had arrived; inf for the first"),
    "sending": ("s", "how long the first attempt took to leave"),
}


def _sides(columns: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """The columns of the real run, then those of the simulated one."""
    return {
        f"{name}_{run}": (unit, f"{meaning}, in the {run} run")
        for run in ("real", "simulated")
        for name, (unit, meaning) in columns.items()
    }


COLUMNS: Mapping[str, Mapping[str, tuple[str, str]]] = {  # table -> column -> unit, meaning
    "events": {
        "time": ("s", "virtual time at which the event happens; a computation's is its end"),
        "seq": ("", "number of the row, from 0; rows are in order of time, then of seq"),
        "kind": ("", "what happens: one of desim.KINDS"),
        "agent": ("", "to whom it happens; -1 is the coordinator"),
        "peer": ("", "the other end of a message; -1 is the coordinator, or nobody"),
        "round": ("", "round of the agent, or of the coordinator's collection, from 1"),
        "bytes": ("B", "size of a message; 0 where it is counted in another row"),
        "seconds": ("s", "how long it took; see desim.KINDS"),
        "value": ("", "a number that depends on the kind; see desim.KINDS"),
        "release": ("", "the release that a message carries, as in releases; -1 for none"),
    },
    "metrics": {
        "time": ("s", "virtual time from which the value is true"),
        "round": ("", "round that was done by then, 0 at the start"),
        "metric": ("", "what is measured: one of desim.METRICS"),
        "agent": ("", "whose model; -1 is the whole network"),
        "value": ("", "the value, without unit"),
    },
    "releases": {
        "time": ("s", "virtual time at which the noise is drawn"),
        "agent": ("", "whose data"),
        "round": ("", "round in which it was computed, from 1"),
        "release": ("", "number of the release, as in events"),
        "mechanism": ("", "how it was randomised; none is without noise"),
        "sensitivity": ("", "replace-one, in the mechanism's norm; inf where there is no bound"),
        "scale": ("", "of the noise in one coordinate: deviation, or b of a Laplace law"),
        "sampling": ("fraction of rows", "share of the agent's rows that were drawn; nan is all"),
        "seen_by": ("", "who receives it: coordinator, neighbours or public"),
        "delivered": ("", "how many recipients it has reached; 0 where it was lost"),
    },
    "curve": {
        "time": ("s", "virtual time from which the value is true"),
        "round": ("", "round that was done by then"),
        "value": ("", "the metric's value"),
    },
    "delivered": {"time": ("s", "virtual time of arrival"), "bytes": ("B", "size of the message")},
    "epsilon": {
        "time": ("s", "virtual time of the release"),
        "agent": ("", "whose data"),
        "epsilon": ("", "what the agent has spent so far, in the terms of attrs"),
    },
    "pairwise": {
        "time": ("s", "virtual time by which the observer has received that"),
        "agent": ("", "whose record it is about"),
        "observer": ("", "who looks: one agent, or several together"),
        "mu": ("", "mu of Gaussian differential privacy of what the observer has seen"),
        "epsilon": ("", "epsilon of that mu, in the terms of attrs"),
        "local": ("", "epsilon of all that the agent has released, whoever sees it"),
        "distance": ("", "links from the agent to the observer; -1 where the graph changes"),
    },
    "critical_path": {
        "round": ("", "round that the step belongs to"),
        "begin": ("s", "virtual time at which it begins"),
        "end": ("s", "virtual time at which it ends"),
        "seconds": ("s", "end - begin"),
        "what": ("", "compute, message, resend, deadline or away"),
        "source": ("", "who sends, or does it; -1 is the coordinator"),
        "target": ("", "who receives, or does it; -1 is the coordinator"),
        "missing": ("", "of a deadline, the agents whose replies it did not wait for"),
    },
    "waits": {
        "time": ("s", "virtual time at which the wait ends"),
        "round": ("", "round of who waits"),
        "agent": ("", "who waits; -1 is the coordinator"),
        "waited": ("s", "how long"),
        "closer": (
            "",
            "whose message ended it; -1 the coordinator, -2 a deadline, -3 nobody, -4 its return",
        ),
        "missing": ("", "of a coordinator's, the agents whose replies were not there"),
    },
    "utilisation": {
        "agent": ("", "the agent"),
        "computing": ("s", "computations that were finished, or under way at the end"),
        "aborted": ("s", "computations that were interrupted"),
        "away": ("s", "time down"),
        "idle": ("s", "the rest"),
        "sending": ("s", "how long its messages took to leave, whatever it did meanwhile"),
        "utilisation": ("", "computing as a share of the run"),
    },
    "energy": {
        "agent": ("", "whose device; -1 is the coordinator"),
        "cause": ("", "idle, computing, sending, receiving, radio or tail"),
        "joules": ("J", "what it took; inf until a target that was never met"),
    },
    "clients": {
        "round": ("", "rounds that were over"),
        "time": ("s", "when the models were these"),
        "agent": ("", "the client"),
        "rows": ("", "its own test rows, on which nobody trains"),
        "accuracy": ("", "share of them whose label its model predicts; nan if not measured"),
        "loss": ("", "mean loss over them; nan if not measured"),
    },
    "fairness": {
        "time": ("s", "when the models were these"),
        "round": ("", "rounds that were over"),
        "mean": ("", "mean of clients' accuracies"),
        "weighted": ("", "the same, weighted by their test rows"),
        "min": ("", "the lowest accuracy of a client"),
        "worst_decile": ("", "mean over the lowest tenth of them, ceil(n/10) of n clients"),
        "best_decile": ("", "mean over the highest tenth of them, ceil(n/10) of n clients"),
        "max": ("", "the highest accuracy of a client"),
        "spread": ("", "standard deviation over clients, sqrt of sum (a - mean)^2 / n"),
    },
    "charge": {
        "time": ("s", "when"),
        "agent": ("", "whose battery"),
        "charge": ("J", "what it holds; below 0 where messages went on after it was empty"),
        "share": ("", "of its capacity"),
        "event": ("", "empty: its agent is down from now on; back: it is up again"),
    },
    "links": {
        "source": ("", "who sends; -1 is the coordinator"),
        "target": ("", "who receives; -1 is the coordinator"),
        "sent": ("", "attempts, repeated ones included"),
        "resent": ("", "attempts that repeat a lost one"),
        "delivered": ("", "messages that arrived"),
        "lost": ("", "attempts that were lost"),
        "bytes": ("B", "sent"),
        "delivered_bytes": ("B", "arrived"),
        "sending": ("s", "how long they took to leave, in all"),
        "on_the_way": ("s", "mean time from the first attempt to the arrival"),
    },
    "staleness": {
        "time": ("s", "virtual time of use"),
        "agent": ("", "who uses it; -1 is the coordinator"),
        "round": ("", "round of who uses it"),
        "peer": ("", "who was heard"),
        "heard": ("", "round in which that was sent"),
        "staleness": ("rounds", "round - heard"),
        "age": ("s", "time since it was first sent; of a reply, since its agent was called"),
    },
    "participation": {
        "agent": ("", "who replies"),
        "contributions": ("", "rounds of the coordinator in which its replies are"),
        "gap": ("rounds", "the fewest from one of them to the next; nan for less than two"),
    },
    "clock_messages": {
        "sender": ("", "who sends; -1 is the coordinator"),
        "receiver": ("", "who receives; -1 is the coordinator"),
        "round": ("", "round"),
        "nth": ("", "number among those of this link and round, from 0"),
        **LAID,
        **_sides(CARRIED),
    },
    "clock_computations": {
        "agent": ("", "who computes"),
        "round": ("", "round"),
        "nth": ("", "number among those of this agent and round, from 0"),
        **LAID,
        **_sides(LASTED),
    },
    "clock_rounds": {
        "round": ("", "round"),
        **LAID,
        **_sides({**LASTED, "closing": ("", "who ended it; -1 is the coordinator")}),
    },
    **STUDY_COLUMNS,
}

KINDS = {  # kind of event -> what happens, and what its seconds and value are
    "activate": ("the coordinator calls an agent", "", ""),
    "down": ("the agent goes away", "", ""),
    "up": ("the agent is back", "", ""),
    "compute": (
        "a computation ends",
        "how long it took",
        "samples, for methods that count them; of the coordinator, replies taken in",
    ),
    "abort": ("an absence or a newer call interrupts a computation", "how long it lasted", ""),
    "release": ("noise is drawn for what leaves the agent next", "", ""),
    "send": ("a message begins to leave", "how long it takes to leave", "attempt, from 0"),
    "lost": ("a message would arrive, but is lost", "since this attempt was sent", "attempt"),
    "deliver": ("a message arrives at agent from peer", "since it was first sent", "attempt"),
    "deadline": ("a deadline ends a collection", "since it was opened", "replies missing"),
    "aggregate": ("a wait ends and the round goes on", "how long it was", "replies that count"),
    "retire": ("the agent's budget is spent and it leaves", "", "epsilon that it has spent"),
}

METRICS = {  # metric -> of the whole network
    "error": "sum over agents of ||x_i - x*||^2 / ||x*||^2, x* the optimum of all data",
    "loss": "the objective, a sum over agents: at the coordinator's model, or the mean of theirs",
    "accuracy": "share of test rows whose label is right",
    "consensus": "mean over agents of ||x_i - mean of x||^2",
    "gradient": "norm of the gradient of the objective's smooth part",
    "positive_rate": "share of test rows that are decided positively",
    "risk_difference": "distance of the positive rates of the two groups",
    "positive_rate_protected": "positive rate of the protected group",
    "positive_rate_others": "positive rate of the others",
    "accuracy_protected": "accuracy in the protected group",
    "accuracy_others": "accuracy among the others",
    "client_accuracy": "accuracy of a client's model on its own test rows; of all, their mean",
    "client_accuracy_weighted": "that mean, weighted by the clients' own test rows",
    "client_accuracy_worst_decile": "mean over the lowest ceil(n/10) of n clients' accuracies",
    "client_accuracy_min": "the lowest accuracy of a client",
    "client_accuracy_spread": "standard deviation over clients of their accuracies",
    "client_loss": "mean loss of a client's model on its own test rows; of all, their mean",
}


def described(frame: "pd.DataFrame", table: str) -> "pd.DataFrame":
    """The frame, with what its row and columns are in `.attrs`: keys row, units and columns.

    units: {column: unit} where there is one; columns: {column: meaning}.
    """
    known = [(name, *found) for name, found in _found(frame, table)]
    frame.attrs["row"] = ROWS[table]
    frame.attrs["units"] = {name: unit for name, unit, _ in known if unit}
    frame.attrs["columns"] = {name: meaning for name, _, meaning in known}
    return frame


def _found(frame: "pd.DataFrame", table: str) -> Iterator[tuple[str, tuple[str, str]]]:
    entries = COLUMNS[table]
    return ((name, entries[name]) for name in map(str, frame) if name in entries)
