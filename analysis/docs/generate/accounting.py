"""What the accountant knows of mechanisms, and what became of the papers' theorems."""

from analysis.docs.generate.markdown import code, escaped, table
from desim.privacy.ledger.ledger import MECHANISMS
from desim.privacy.papers.claims import Bound
from desim.privacy.papers.theorems import BOUNDS, theorems

COSTS = {
    "none": "infinite, unless $D = 0$",
    "gaussian": r"$\mu = D/s$ of Gaussian differential privacy, exact; on a secret, uniform, fresh "
    "batch (`sampling` below 1) that of the pair of laws below, which dominates",
    "noisy-gradient": r"$\mu = D/s$, $D$ being the effective sensitivity of a whole noisy training",
    "laplace": "the Laplace mechanism, $D$ in L1 and $s = b$",
    "discrete-gaussian": r"zCDP $D^2/(2s^2)$, $D$ on the lattice",
    "objective-perturbation": r"zCDP $D^2/(2s^2)$ and a rest of $10^{-8}$",
    "sparse-vector": r"pure differential privacy $D/s$ for each answer",
    "reused": "infinite: a draw of noise that has served another value",
    "l2-laplace": r"pure differential privacy $D/s$, density $\propto e^{-\lVert e\rVert/s}$",
    "clipped-gaussian": r"$\mu = D/s$ under every relation: the value was shortened to a norm of "
    "$D/2$, so that $D$ bounds what one record moves and what all of an agent's do",
    "objective-laplace": r"the same, on an objective; $D$ holds the change of volume times $s$",
    "sum": r"what a trusted coordinator adds up, each of norm $D/2$ at most: $\mu = D/s$, and for "
    r"an agent that is left out $D/(2s)$; charged to whoever has a reply in it",
    "poisson-sum": "the same; where an agent is left out, and who took part is secret, a sum "
    r"that it is in with probability $q$, `sampling`: $(1-q)N(0,1) + qN(D/(2s),1)$ and "
    "$N(0,1)$, both ways",
    "subset-sum": "the same; where an agent or record is replaced, and who took part is secret, "
    "that of a secret batch of that share of the agents",
    "toeplitz-sum": "noise is correlated over rounds: of an agent in rounds $t_1$, $t_2$, ... all "
    r"rows together $\mu = \|\sum_i C e_{t_i}\| D/s$, half of it left out; `sampling` of round $t$ "
    "is the coefficient $c_{t-1}$ of the Toeplitz matrix $C$",
    "tree-sum": r"the same with trees over 1/`sampling` rounds each, of $L$ levels: $\mu^2 = \sum "
    r"n^2 D^2/(L s^2)$ over nodes, $n$ of whose rounds the agent was in",
    "lattice-sum": r"zCDP $D^2/(2s^2)$ of a sum of whole numbers with shares of discrete Gaussian "
    r"noise, and for an agent that is left out $D^2/(8s^2)$; $D$ holds the rounding and $\tau$",
    "skellam-sum": "the same with Skellam noise, at whole orders of the Renyi divergence",
    "chained-gaussian": r"noise of an agent is correlated over its rounds, $\sigma C^{-1}z$: "
    r"$\mu = D/s$ given all that it has released before, so that $\mu^2$ adds up to the largest "
    r"$\|Cd\|^2/\sigma^2$ of a record; $D$ holds the row of $C$. Of all records of an agent each "
    "counts by itself",
}


def mechanisms() -> str:
    """What a row of each mechanism costs."""
    return table(("mechanism", "what a row costs"), ((code(m), COSTS[m]) for m in MECHANISMS))


def verdicts() -> str:
    """All theorems, by paper."""
    return _table(BOUNDS, algorithms=True)


def about(algorithm: str) -> str:
    """The theorems about one algorithm, "" where there are none."""
    found = theorems(algorithm)
    return _table(found, algorithms=False) if found else ""


def _table(bounds: tuple[Bound, ...], algorithms: bool) -> str:
    head = ("theorem", "verdict", "it speaks about", "what is wrong, or needed", "what holds")
    rows = []
    for one in bounds:
        names = "\n" + ", ".join(f"[{a}](algorithms/{a}.md)" for a in one.algorithms)
        who = f"{escaped(one.theorem)}\n{escaped(one.paper)}" + names * algorithms
        rest = (escaped(text) for text in (one.view, one.wrong, one.rigorous))
        rows.append((who, f"**{one.verdict}**", *rest))
    return table(head, rows)
