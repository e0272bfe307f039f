"""What the verbs of `us` and `hub` refuse, in the same words on both engines that run programs."""

import numpy as np
import pytest
from cases import graph, star
from mutant import mutant
from test_engines import differences

import desim
from desim import shapes
from desim.errors import InputError, RunError
from desim.network.conditions.topology import from_edges, random_matching

HEAD = """
import numpy as np
from desim.method import Method, Mechanism, Strict, Terms, View, batch_gradient, plain

class Parameters(Strict):
    \"\"\"None.\"\"\"

"""
GRAPH = f"""{HEAD}
class Wrong(Method):
    name, kind, summary, paper, Parameters = "wrong", "graph", "-", "-", Parameters
    policies = ("all", "each", "deadline")

    def agents(self, us):
        n, cost = len(us.who), Terms(
            Mechanism.GAUSSIAN, View.NEIGHBOURS, *np.ones((2, len(us.who))), np.ones(len(us.who)))
        us.x = self.settings.initial("x0")[us.who]
        for k in us.rounds():
            w = us.x
            g = yield us.compute(self.job, w, work=6)
            x = us.release(w - 0.1 * g, cost)
            us.send(x)
            heard = yield us.gather()
            us.x = (x + us.sum(heard)) / (1.0 + us.degree[:, None])
            us.report(us.x)

    def job(self, us, x):
        count, round, seed = 3, us.round, self.settings.seed
        return batch_gradient(us.who, x, count, round, seed, self.problem.data, step=0)
"""
STAR = f"""{HEAD}
class Wrong(Method):
    name, kind, summary, paper, Parameters = "wrong", "coordinator", "-", "-", Parameters

    def coordinator(self, hub):
        x, work = np.zeros(self.problem.dim), self.problem.rows
        hub.start(x=self.settings.initial("x0"))
        hub.publish(x)
        kept = []
        while hub.open:
            hub.call(hub.invite(), self.job, x, work=work)
            replies = yield hub.collect()
            kept.append(replies.payload)
            x = np.mean(kept, axis=(0, 1))
            hub.publish(x)

    def job(self, us, x):
        return x - 0.1 * batch_gradient(
            us.who, x, 3, us.address, self.settings.seed, self.problem.data)
"""
ROWS = r"found an array of .*; allowed: numbers of shape \(\d, (dim|\d)\), a row for each agent"
AMOUNTS = "allowed: finite numbers >= 0, one for all agents or one for each"
GRAPHS = {
    "release: rows": (
        "us.release(w - 0.1 * g", "us.release(us.x[:0]", f"us.release: value: {ROWS}"),
    "release: one row of numbers": (
        "us.release(w - 0.1 * g", "us.release(us.x[:, 0]", f"us.release: value: {ROWS}"),
    "release: a list": (
        "us.release(w - 0.1 * g", "us.release(us.x.tolist()", "us.release: value: found"),
    "terms: of others": (
        "*np.ones((2, len(us.who))), np.ones(len(us.who))", "*np.ones((3, 3))",
        "us.release: terms: found terms of 3 agents; allowed: those of us.who, "),
    "terms: below zero": (
        "*np.ones((2,", "*-np.ones((2,", "us.release: terms: found sensitivity .*allowed: .*>= 0"),
    "terms: sampling": (
        "np.ones(len(us.who)))", "np.full(len(us.who), 7.0))", "terms: .*sampling from 0 to 1"),
    "terms: none": ("w - 0.1 * g, cost", "us.x, None", "us.release: terms: found null"),
    "release: part of a draw": (
        "w - 0.1 * g, cost)", "w, cost, draw=1.5)", "us.release: draw: found 1.5; allowed: a whol"),
    "release: great draw": (
        "w - 0.1 * g, cost)", "w, cost, draw=2**32)", "us.release: draw: found 4294967296; allow"),
    "release: too many": (
        "us.send(x)", "[us.release(x, cost) for _ in range(255)]; us.send(x)",
        "found more than 255 releases in a round; allowed: 255"),
    "above: noise": (
        "us.send(x)", "us.above(x[:, 0], cost); us.send(x)",
        "us.above: terms: mechanism: found .*GAUSSIAN.*; allowed: Mechanism.SPARSE_VECTOR"),
    "plain: view": (
        "us.send(x)", "plain(3, 7); us.send(x)", "plain: found view 7, .*; allowed: one of View"),
    "terms: mechanism": (
        "Mechanism.GAUSSIAN, View", "99, View", "us.release: terms: mechanism: found 99; allowed"),
    "terms: coupled": (
        "np.ones(len(us.who)))", "np.ones(len(us.who)), 0.0, np.ones(9))", "found terms of 9 age"),
    "terms: resolution": (
        "np.ones(len(us.who)))", "np.ones(len(us.who)), -1.0)",
        "us.release: terms: resolution: found -1.0"),
    "terms: changed": ("us.send(x)", "cost.scale[:] = 0; us.send(x)", "is read-only"),
    "send: rows": ("us.send(x)", "us.send(x[:0])", f"us.send: payload: {ROWS}"),
    "send: complex": ("us.send(x)", "us.send(x * 1j)", f"us.send: payload: {ROWS}"),
    "send: words": ("us.send(x)", "us.send(x.astype(str))", f"us.send: payload: {ROWS}"),
    "send: negative bits": (
        "us.send(x)", "us.send(x, bits=-8)", "us.send: bits: found -8; allowed: a whole number"),
    "send: parts of a bit": ("us.send(x)", "us.send(x, bits=3.7)", "us.send: bits: found 3.7"),
    "send: two widths": (
        "us.send(x)", "us.send(np.hstack([x] * k)); yield us.gather(1.0); us.send(x)",
        "us.send: payload: found messages of different widths"),
    "compute: twice": (
        "g = yield us.compute(self.job, w, work=6)",
        "r = us.compute(self.job, w, work=6); g = yield r; g = yield r",
        "yields a request again, or later than another one; allowed: .*once and at once"),
    "compute: late": (
        "g = yield us.compute(self.job, w, work=6)",
        "r = us.compute(self.job, w, work=6); us.release(w, cost); g = yield r",
        "us.release: found after a request that was not yielded; write g = yield us.compute"),
    "gather: not yielded": (
        "heard = yield us.gather()", "us.gather().fresh", "fresh: found a request; write heard = "),
    "raport": (
        "us.report(us.x)", "us.raport(us.x)",
        "no state 'raport'; set it first; did you mean 'report'"),
    "gather: twice": (
        "heard = yield us.gather()", "r = us.gather(); heard = yield r; heard = yield r",
        "yields a request again, or later"),
    "compute: no job": ("(self.job, w,", "('f', w,", "us.compute: job: found 'f'; allowed: a fu"),
    "compute: no work": ("work=6", "", f"us.compute: work: found null; {AMOUNTS}"),
    "compute: nan": ("work=6", "work=np.nan", f"us.compute: work: found nan; {AMOUNTS}"),
    "compute: below zero": ("work=6", "work=-10.0", f"us.compute: work: found -10.0; {AMOUNTS}"),
    "compute: rows": ("work=6", "work=np.ones(3)", f"us.compute: work: found .*; {AMOUNTS}"),
    "compute: words": ("work=6", "work='x'", f"us.compute: work: found 'x'; {AMOUNTS}"),
    "compute: seconds": ("work=6", "seconds=-1", f"us.compute: seconds: found -1; {AMOUNTS}"),
    "compute: an input": ("(self.job, w,", "(self.job, 0.5,", "us.compute: input 1 of the job"),
    "gather: below zero": ("us.gather()", "us.gather(-1.0)", "us.gather: within: found -1.0"),
    "gather: nan": ("us.gather()", "us.gather(np.nan)", "us.gather: within: found nan"),
    "gather: words": ("us.gather()", "us.gather('x')", "us.gather: within: found 'x'"),
    "arrived: waiting for all": (
        "us.gather()", "us.arrived()", "us.arrived: found policy: all; allowed: policy: each"),
    "sum: too few weights": (
        "us.sum(heard)", "us.sum(heard, np.ones(2))", "us.sum: weights: found .*; allowed: "),
    "known: rows": ("us.sum(heard)", "us.sum(us.known(us.x[:0]))", f"us.known: values: {ROWS}"),
    "link_weights: rows": (
        "us.sum(heard)", "us.link_weights(np.ones((2, 2)))", f"us.link_weights: matrix: {ROWS}"),
    "report: rows": ("us.report(us.x)", "us.report(us.x[:0])", f"us.report: {ROWS}"),
    "report: other models": (
        "us.report(us.x)", "us.report(np.hstack([us.x] * 2))", f"us.report: {ROWS}"),
    "report: twice": (
        "us.report(us.x)", "us.report(us.x); us.report(x)",
        "us.report: found a second one in round 1; allowed: one in each round"),
    "job: nothing": (
        "return batch", "batch", "job returns null; allowed: an array of numbers of 8"),
    "job: one row": ("step=0)", "step=0)[:1]", "job returns an array .*; allowed: .* of 8 rows"),
    "job: a yield": (
        "return batch", "yield batch", "job returns a generator: a function with a yi"),
    "gradient: rows": ("us.who, x,", "us.who, x[:0],", f"batch_gradient: x: {ROWS}"),
    "gradient: one number": ("us.who, x,", "us.who, x[:, 0],", f"batch_gradient: x: {ROWS}"),
    "gradient: agents": (
        "us.who, x,", "us.who + 99, x,", "batch_gradient: who: found agents from 99 to 106"),
    "gradient: counts": ("count, round, seed = 3,", "count, round, seed = np.ones(2, int),",
                         "batch_gradient: count: found an array"),
    "gradient: negative count": ("seed = 3,", "seed = -3,", "batch_gradient: count: found -3"),
    "gradient: part of a count": ("seed = 3,", "seed = 2.7,", "batch_gradient: count: found 2.7"),
    "gradient: negative round": (
        "us.round, self", "-us.round, self", "batch_gradient: round: found"),
    "gradient: negative step": ("step=0", "step=-1", "batch_gradient: step: found -1; allowed"),
    "gradient: steps of agents": (
        "step=0", "step=np.zeros(len(us.who), int)", "one whole number from 0 to 42949672",
    ),
    "gradient: part of a step": ("step=0", "step=0.5", "batch_gradient: step: found 0.5; allowed"),
    "gradient: great step": ("step=0", "step=2**32", "batch_gradient: step: found 4294967296"),
    "gradient: unnamed step": (
        "step=0", "2", "batch_gradient: out: found 2; .* by its name, step=1"),
    "gradient: seed": ("self.settings.seed", "1.5", "batch_gradient: seed: found 1.5; allowed"),
}  # fmt: skip
STARS = {
    "call: empty": (
        "self.job, x,", "self.job, x[:0],", r"x: found an array of float64, shape \(\d, 0"),
    "call: complex": (
        "self.job, x,", "self.job, x * 1j,", "hub.call: payload: found .* complex128"),
    "call: words": (
        "self.job, x,", "self.job, x.astype(str),", "hub.call: payload: found an array"),
    "call: a list": ("self.job, x,", "self.job, x.tolist(),", "hub.call: payload: found .*one row"),
    "call: work of some": (
        "work=work", "work=work[:2]", "hub.call: work: found .*one for each of all"),
    "call: one work": ("work=work", "work=5", r"hub.call: work: found 5; allowed: \(\d,\) numbers"),
    "call: columns of work": ("work=work", "work=work[:, None]", "hub.call: work: found an array"),
    "call: bits": (
        "work=work", "work=work, bits=-64", "hub.call: bits: found -64; allowed: a whole"),
    "call: empty bits": (
        "work=work", "work=work, bits=np.empty(0, int)", "hub.call: bits: found .*; allowed: a w"),
    "collect: not yielded": (
        "replies = yield hub.collect()", "replies = hub.collect(); replies.payload",
        "payload: found a request; write replies = yield hub.collect"),
    "call: view": (
        "work=work", "work=work, charge=plain(len(work), View.NEIGHBOURS)",
        "hub.call: charge: view: found .*NEIGHBOURS.*; allowed: View.COORDINATOR or View.PUBLIC"),
    "call: two widths": (
        "work=work)", "work=work); hub.call(np.arange(0), self.job, np.ones(1), work=work)",
        "hub.call: payload: found 1 numbers while agents owe replies to"),
    "tell: the busy": (
        "replies = yield", "hub.tell(np.array([0]), self.job, x); replies = yield",
        "hub.tell: found agent 0, which has not replied to its latest call; allowed"),
    "call: no job": ("self.job, x,", "None, x,", "hub.call: job: found null; allowed: a funct"),
    "call: one twice": (
        "work=work)", "work=work); hub.call(np.array([0]), self.job, x, work=work)",
        "hub.call: found agent 0, which owes a reply"),
    "tell: no job": (
        "hub.publish(x)\n\n", "hub.tell(replies.who, 5, x)\n\n", "hub.tell: job: found 5"),
    "call: reply": (
        "work=work", "work=work, reply_bits=0.5", "hub.call: reply_bits: found 0.5; al"),
    "call: charge": (
        "work=work", "work=work, charge=1.0", "hub.call: charge: found 1.0; allowed: T"),
    "job: rows": (
        "return x", "return x[:1]; x", r"job returns an array .*; allowed: .*\(\d, dim\)"),
    "job: one number": ("return x", "return x[:, 0]; x", "job returns an array .*a row for each"),
    "job: nothing": ("return x", "x", "line .*, job returns null; allowed: numbers of shape"),
    "job: a yield": ("return x", "yield x", "job returns a generator: a function with a yield"),
    "tell: nobody there": (
        "hub.publish(x)\n\n", "hub.tell(np.array([99]), self.job, x)\n\n",
        "hub.tell: found agents .99.; allowed: numbers from 0 to"),
    "tell: rows": (
        "hub.publish(x)\n\n", "hub.tell(replies.who, self.job, replies.payload)\n\n",
        "hub.tell: payload: found an array .*; allowed: one row of numbers"),
}  # fmt: skip
TABLE = [
    *((f"us.{name}", GRAPH, *row) for name, row in GRAPHS.items()),
    *((f"hub.{name}", STAR, *row) for name, row in STARS.items()),
]


def scenario(folder, text, right="", wrong="", **more):
    """A scenario of the method, with what is right replaced by what is wrong."""
    assert right in text
    (folder / "wrong.py").write_text(text.replace(right, wrong, 1) if right else text)
    made = star() if "coordinator" in text else graph()
    made.pop("privacy", None)
    made["plugins"] = [str(folder / "wrong.py")]
    return {**made, "algorithm": {"name": "wrong"}, "stop": {"rounds": 3}, **more}


@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("text", [GRAPH, STAR], ids=["us", "hub"])
def test_nothing_is_refused_that_is_right(text, engine, tmp_path):
    assert desim.run(scenario(tmp_path, text), overrides={"engine": engine}).status == "done"


@pytest.mark.thin(3)
@pytest.mark.parametrize(("text", "right", "wrong", "words"), [row[1:] for row in TABLE],
                         ids=[row[0] for row in TABLE])  # fmt: skip
def test_what_is_wrong_is_told_in_the_same_words_on_both_engines(
    text, right, wrong, words, tmp_path
):
    given = scenario(tmp_path, text, right, wrong)
    for engine in ("cohort", "agents"):
        with pytest.raises(RunError, match=words) as told:
            desim.run(given, overrides={"engine": engine})
        assert "wrong.py, line" in str(told.value)


SUM = "            us.x = (x + us.sum(heard))"
RELEASE = "            x = us.release(w - 0.1 * g, cost)\n"
TERMS = """            if k == 1:
                s = np.ones(n)
                cost = Terms(Mechanism.GAUSSIAN, View.NEIGHBOURS, s, s, s)
            x = us.release(w - 0.1 * g, cost)"""
COPIES = {
    "the sum": (
        GRAPH, SUM, f"            us.sum(heard)\n{SUM}",
        f"            s = us.sum(heard); s += 9\n{SUM}"),
    "an input": (
        GRAPH, "        return batch", "        y = x.copy(); y += 9; return y; batch",
        "        x += 9; return x; batch"),
    "what is fresh": (
        GRAPH, "us.sum(heard)", "us.sum(heard, heard.fresh)",
        "us.sum(heard, (heard.fresh.copy(), heard.fresh.fill(False))[0])"),
    "what terms were made of": (
        GRAPH, RELEASE, f"{TERMS}; s *= 1\n", f"{TERMS}; s *= 0.5\n"),
    "a payload": (
        STAR, "        return x -", "        x = x.copy(); x += 9; return x; x -",
        "        x += 9; return x; x -"),
    "a model": (
        STAR, "hub.publish(x)\n\n", "hub.publish(x)\n            kept[-1] = kept[-1] + 9\n\n",
        "hub.publish(x)\n            kept[-1] = kept[-1] + 9; x += 9\n\n"),
}  # fmt: skip


@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize(("text", "line", "aside", "within"), COPIES.values(), ids=COPIES.keys())
def test_what_a_program_changes_is_its_own(text, line, aside, within, engine, tmp_path):
    runs = [
        desim.run(
            scenario(tmp_path, text, line, change, observe={"every": "20 ms"}),
            overrides={"engine": engine},
        )
        for change in (aside, within)
    ]
    one, other = runs
    assert one.metrics.equals(other.metrics)
    assert one.state["x"].tobytes() == other.state["x"].tobytes()


@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize(
    ("text", "right", "wrong", "done"),
    [
        (GRAPH, "us.report(us.x)", "us.report(us.x); return us.x", 1),
        (GRAPH, "us.report(us.x)", "", 0),
        (STAR, "hub.publish(x)\n\n", "hub.publish(x)\n            break\n\n", 1),
    ],
    ids=["return", "no report", "break"],
)
def test_a_program_that_ends_by_itself_is_no_run_of_all_rounds(
    text, right, wrong, done, engine, tmp_path
):
    run = desim.run(scenario(tmp_path, text, right, wrong), overrides={"engine": engine})
    words = f"the program of the method ended by itself, having shown {done} rounds"
    assert run.manifest["reason"] == words
    assert any(words in warning for warning in run.manifest["warnings"])


CALL = "            hub.call(hub.invite(), self.job, x, work=work)"
POLICIES = '    policies = ("all", "deadline", "quorum")\n\n'
HALVES = """            who = hub.invite()
            hub.call(who[:2], self.job, x, work=work)
            hub.call(who[2:], self.job, x, work=work)"""


def test_calls_of_two_widths_are_refused_where_a_call_interrupts(tmp_path):
    text = STAR.replace("    def coordinator", f"{POLICIES}    def coordinator")
    twice = CALL + "; hub.call(np.array([0]), self.job, np.ones(1), work=work)"
    given = scenario(tmp_path, text, CALL, twice, policy={"quorum": 3})
    for engine in ("cohort", "agents"):
        with pytest.raises(RunError, match="found 1 numbers while agents owe replies to"):
            desim.run(given, overrides={"engine": engine})


def test_jobs_of_other_rows_are_no_batch(tmp_path):
    more = "            yield us.compute(self.same, w[:, : 1 + k % 2], work=us.who % 3)\n"
    text = f"{GRAPH}\n    def same(self, us, x):\n        return x\n"
    given = scenario(
        tmp_path, text, RELEASE, more + RELEASE, compute={"speed": {"uniform": [1, 99]}}
    )
    runs = [desim.run(given, overrides={"engine": engine}) for engine in ("cohort", "agents")]
    assert differences(*runs) == []


@pytest.mark.parametrize("policy", ["all", {"deadline": "1 s"}, {"quorum": 3}])
def test_two_calls_are_collected_together(policy, tmp_path):
    text = STAR.replace("    def coordinator", f"{POLICIES}    def coordinator")
    given = scenario(tmp_path, text, CALL, HALVES, policy=policy)
    runs = [desim.run(given, overrides={"engine": engine}) for engine in ("cohort", "agents")]
    assert differences(*runs) == []
    replies = runs[0].events.query("kind == 'aggregate'")["value"].tolist()
    assert set(replies) == {6.0 if policy == "all" else min(replies)}


@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_state_is_floats_whatever_it_began_as(engine, tmp_path):
    text = STAR.replace("        return x -", "        us.n = us.n + 0.5\n        return x -")
    start = 'initial("x0"), n=np.zeros(self.problem.agents, int)'
    given = scenario(tmp_path, text, 'initial("x0")', start, participation={"uniform": 3})
    run = desim.run(given, overrides={"engine": engine})
    assert run.state["n"].sum() == 0.5 * 3 * 3


def test_pairs_need_links_in_both_directions():
    ring = from_edges(4, [(i, (i + 1) % 4) for i in range(4)], "network", directed=True)
    with pytest.raises(InputError, match=r"random_matching: found a directed .*allowed: "):
        random_matching(ring, 1, 1)


def check_rows(module):
    """Rows that kernels would read beyond their end are refused."""
    for value in (
        np.ones((2, 4)),
        np.ones((4, 4)),
        np.ones((3, 5)),
        np.ones(3),
        np.full((3, 4), "1"),
    ):
        with pytest.raises(ValueError, match="found an array"):
            module.rows_given("x", value, 3, 4)
    assert module.rows_given("x", np.ones((3, 4)), 3, 4).shape == (3, 4)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("value.ndim == 2 and len(value) == n", "value.ndim == 2 and len(value) >= n"),
        ("dim is None or value.shape[1] == dim", "True"),
        ("== dim) and value.dtype.kind in REAL", "== dim)"),
    ],
)
def test_rows_are_looked_at(right, wrong):
    check_rows(shapes)
    with pytest.raises(pytest.fail.Exception):
        check_rows(mutant(shapes, right, wrong))
