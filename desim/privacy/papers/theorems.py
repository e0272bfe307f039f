"""All theorems of the papers, each with the view it covers, a verdict and what holds instead."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from desim.columns import columns_of
from desim.errors import InputError, raised, refusal
from desim.privacy.papers import (
    conversions,
    d_zoa,
    fed_plt,
    functional,
    pp_admm,
    pr_admm,
    q_dpsgd,
    zcdp_nfl,
)
from desim.privacy.papers.claims import ALL, FINAL, ONCE, ONE, Bound, Claim, Inputs

DWORK = "Dwork, Roth 2014"
ZCDP = "Gauthier, Gratton, Venkategowda, Werner 2023"
ZHANG = "Zhang, Zhang, Xiao, Yang, Winslett 2012"
XU = "Xu, Yuan, Wu 2019"
DING = "Ding 2021, dissertation"
PLT = "Bastianello, Liu, Johansson 2024"
GOSSIPED = "Cyffers, Even, Bellet, Massoulie 2022"
CORRELATED = "Allouah, Koloskova, El Firdoussi, Jaggi, Guerraoui 2024"
ZOA = "Gratton, Venkategowda, Arablouei, Werner 2021"
NFL, DP = ("zcdp-nfl",), ("dp-nfl",)
DYNAMIC = ("zcdp-nfl", "zcdp-subgradient", "p-admm")  # all that the paper compares by it
PR, PP, IPP = ("pr-admm",), ("pp-admm",), ("ipp-admm",)
Q1, Q2, FED, DZOA = ("q-dpsgd-1",), ("q-dpsgd-2",), ("fed-plt",), ("d-zoa",)
FM, PFLR, PDFC, ADFC = ("functional-mechanism",), ("pflr",), ("pdfc",), ("adfc",)
INFINITE = "infinite, unless noise is added"
EXACT = "exact Gaussian DP of the same releases"
UNNAMED = (
    "needs epsilon < 1 in every iteration, and clipped gradients; the paper names no rule of "
    "composition"
)
COUPLED = (
    "conditions on v, which depends on the data, and takes coupled models for independent; "
    "false for who sees z, from which every x follows: audits refute it there"
)
ALLOTTED = functional.allotted, "as allotted"

BOUNDS = (
    Bound(
        "zcdp-nfl/lemma-I", ZCDP, "Lemma I", NFL, ONE, "holds",
        "needs c1 to bound the gradient of every record: clip, or the sensitivity is infinite",
        "the same",
    ),
    Bound(
        "zcdp-nfl/theorem-I", ZCDP, "Theorem I", NFL, ONE, "holds",
        "the subgradient must be taken at the released model",
        "the same",
    ),
    Bound(
        "zcdp-nfl/corollary", ZCDP, "Corollary", DYNAMIC, ALL, "loose",
        "the conversion of zCDP is loose; the index 0 < n < T should be n = 1 .. T; phi grows by "
        "1/tau, which is not the variance falling by tau where eta varies",
        EXACT,
        zcdp_nfl.corollary, "zCDP, simple conversion",
    ),
    Bound(
        "dp-nfl/basic", DWORK, "Theorems A.1 and 3.16", DP, ALL, "loose",
        UNNAMED, EXACT,
        conversions.composed, "basic composition",
    ),
    Bound(
        "dp-nfl/advanced", DWORK, "Theorems A.1 and 3.20", DP, ALL, "loose",
        UNNAMED, EXACT,
        conversions.composed, "advanced composition",
    ),
    Bound(
        "pr-admm/lemma-10", DING, "Lemma 10", PR, ONE, "loose",
        "1/|D_i| is dropped and the proof equates an implicit minimiser: |D_i| times too large",
        "2V / (n_i (2 eta |V_i| + lambda/N)), and 2 beta / (2 eta |V_i| + lambda/N) if inexact",
    ),
    Bound(
        "pr-admm/theorem-1", DING, "Theorem 1", PR, ONE, "loose",
        "follows from Lemma 10", "D^2 / (2 sigma^2) with the right D",
    ),
    Bound(
        "pr-admm/theorem-2", DING, "Theorem 2", PR, ALL, "wrong",
        "a spurious -1 makes one release free: T = T_p = 1 would cost nothing",
        "the sum without -1, exact Gaussian DP",
        pr_admm.decaying, "zCDP, simple conversion",
    ),
    Bound(
        "pr-admm/theorem-3", DING, "Theorem 3", PR, ALL, "loose",
        "formula (17) divides by 0 at t = 0, where sigma_1 is meant; the conversion is loose",
        EXACT,
        pr_admm.decaying, "zCDP, simple conversion",
    ),
    Bound(
        "pp-admm/theorem-6", DING, "Theorem 6", PP, ALL, "wrong",
        "(epsilon, delta)-DP gives no zCDP, the noise depends on the output, sigma_i1 needs "
        "eps_i3 <= 1, and rho_i2 must be 4 rho_i2; the number is too small at eps = 10",
        "T (rho + 4 rho_i2), rho = 2 / (n_i^2 sigma_i1^2) where a row hardly bends the objective",
    ),
    Bound(
        "pp-admm/theorem-7", DING, "Theorem 7", PP, ALL, "wrong",
        "the conversion is right, but its rho is that of Theorem 6",
        "the rho that replaces Theorem 6",
        pp_admm.theorem_7, "zCDP, simple conversion",
    ),
    Bound(
        "ipp-admm/lemma-12", DING, "Lemma 12", IPP, "one query of the sparse vector", "unproved",
        "2C holds by the range of the clipped loss (without the regulariser); the proof forgets "
        "that the compared solution depends on the data, and loses 1/n",
        "2C",
    ),
    Bound(
        "ipp-admm/lemma-13", DING, "Lemma 13", IPP, "answers of the sparse vector", "wrong",
        "Algorithm 3 draws the threshold's noise in every iteration: T answers below the threshold "
        "cost T eps_q, which passes eps_1 + eps_2",
        "T eps_q^2 / 2 with eps_q = min(eps_2 / 2c, eps_1 / c)",
    ),
    Bound(
        "ipp-admm/theorem-10", DING, "Theorem 10", IPP, ALL, "unproved",
        "query and release share the draw b_i1, all T uses of the data cost and c are charged, "
        "count > c answers c + 1 times, and sigma_i1 has eps_i1 for eps_i3",
        "all T charged as published, or fresh b for the c releases",
        pp_admm.theorem_10, "zCDP, simple conversion",
    ),
    Bound(
        "q-dpsgd-1/theorem-11", DING, "Theorem 11", Q1, ALL, "wrong",
        "the leading term of amplification by sampling is taken for a bound: refuted for small "
        "batches and little noise, void unless batches are secret, uniform and fresh",
        "RDP of batches drawn without replacement; no amplification where they are known",
        q_dpsgd.theorem_11, "RDP at the paper's order",
    ),
    Bound(
        "q-dpsgd-2/theorem-14", DING, "Theorem 14", Q2, "one query", "holds",
        "is Proposition 5 of Canonne, Kamath, Steinke 2020", "the same",
    ),
    Bound(
        "q-dpsgd-2/corollary-1", DING, "Corollary 1", Q2, "one query", "holds",
        "for query values on the grid", "the same",
    ),
    Bound(
        "q-dpsgd-2/lemma-19", DING, "Lemma 19", Q2, ONE, "wrong",
        "takes the agent's own model for public, but it keeps gradients without noise",
        "a recursion that accumulates them",
    ),
    Bound(
        "q-dpsgd-2/theorem-15", DING, "Theorem 15", Q2, ALL, "wrong",
        "rests on Lemma 19, and on amplification that a state which remembers every batch forbids",
        "infinite with Lemma 19's sensitivity; finite with the accumulated one, no amplification",
        q_dpsgd.theorem_15, "RDP at the paper's order",
    ),
    Bound(
        "functional-mechanism/theorem-1", ZHANG, "Theorem 1", FM, ONCE, "holds",
        "needs features within the bounds that the sensitivity supposes",
        "the same",
        *ALLOTTED,
    ),
    Bound(
        "pflr/pflr", XU, "PFLR", PFLR, ONCE, "loose",
        "zbar must be public, or its part in every record's coefficients be paid",
        "eps D / Delta_1 with D of the domain",
        *ALLOTTED,
    ),
    Bound(
        "pflr/pflr-star", XU, "PFLR*", PFLR, ONCE, "wrong",
        "the mean of the noise is computed from the data and nothing pays for that: it is the fair "
        "objective with the noise of the plain one",
        "eps D / Delta_1 with D of the fair objective",
        *ALLOTTED,
    ),
    Bound(
        "pdfc/theorem-18", DING, "Theorem 18", PDFC, ONCE, "unproved",
        "one record can move more than 1/d of the coefficients' sensitivity; true at the printed, "
        "too large sensitivity, false as a rule for a smaller valid one",
        "max(eps_s, eps_n) D / Delta_1 with D = 3 sqrt(d) + d/4",
        *ALLOTTED,
    ),
    Bound(
        "adfc/theorem-19", DING, "Theorem 19", (*ADFC, *FM), ONCE, "loose",
        "noise 1.5 times too large at (1, 1e-3)", "exact Gaussian DP",
        *ALLOTTED,
    ),
    Bound(
        "adfc/theorem-20", DING, "Theorem 20", ADFC, ONCE, "unproved",
        "shares epsilon out as Theorem 18 does", "mu = Delta_2 / min(sigma_s, sigma_n)",
        *ALLOTTED,
    ),
    Bound(
        "fed-plt/proposition-4", PLT, "Proposition 4", FED, FINAL, "unproved",
        COUPLED, "every round charged, exact Gaussian DP",
    ),
    Bound(
        "fed-plt/adp", PLT, "Proposition 4 with Lemma 5", FED, FINAL, "unproved",
        COUPLED, "every round charged, exact Gaussian DP",
        fed_plt.last_model, "RDP at its best order",
    ),
    Bound(
        "d-zoa/lemma-2", ZOA, "Lemma 2", DZOA, ONE, "wrong",
        "an upper bound on the variance of the noise is used as the variance",
        INFINITE,
    ),
    Bound(
        "d-zoa/lemma-3", ZOA, "Lemma 3", DZOA, ONE, "holds",
        "for exact minimisers", "the same",
    ),
    Bound(
        "d-zoa/theorem-1", ZOA, "Theorem 1", DZOA, ONE, "wrong",
        "the randomness is not Gaussian and its covariance depends on the data; epsilon falls with "
        "a public scale that changes nothing",
        INFINITE,
    ),
    Bound(
        "d-zoa/theorem-2", ZOA, "Theorem 2", DZOA, ALL, "wrong",
        "drops a term even under its own Gaussian model, which does not hold",
        INFINITE,
        d_zoa.estimates, "moments of Gaussian noise",
    ),
    Bound(
        "muffliato/pairwise", GOSSIPED, "pairwise loss of gossip, as the authors compute it",
        ("muffliato",), "what one agent receives", "wrong",
        "adds up what each message tells as if its noise were its own, though those of one step "
        "share it: who hears several subtracts, and on a ring of 12 an agent six hops away is "
        "known as if its release were heard, mu^2 1.000 where 10 rounds would cost .019",
        "Run.pairwise, exact for inputs that follow from no unseen noise; else all releases",
    ),
    Bound(
        "decor/accountant", CORRELATED, "the accountant, as the authors' program has it",
        ("decor",), "all messages, without a secret", "loose",
        "of one round 2 C^2 max_i [(s^2 I + c^2 L)^-1]_ii is exact for who holds no secret, and "
        "its conversion is loose; an end of a link takes its own secrets away and knows more, all "
        "neighbours together as much as if nothing were shared",
        "Run.pairwise by observer, and coalitions; charged is each agent's own noise alone",
    ),
)  # fmt: skip

BY_NAME = {bound.name: bound for bound in BOUNDS}
COMPUTED = tuple(bound for bound in BOUNDS if bound.formula is not None)


def theorems(algorithm: str) -> tuple[Bound, ...]:
    """Return the theorems about one algorithm, by its name in scenarios."""
    return tuple(bound for bound in BOUNDS if algorithm in bound.algorithms)


def bound_of(inputs: Inputs, brought: Iterable[Bound] = ()) -> Bound:
    """The theorem that inputs name, of desim's own or of those that a plug-in has brought.

    InputError where there is none, or none that gives an epsilon.
    """
    known, name = {one.name: one for one in (*COMPUTED, *brought)}, inputs.get("theorem")
    if isinstance(name, str) and name in known:
        return known[name]
    raise InputError(f"claim: theorem: {refusal(name, ', '.join(known), known)}")


def claim_of(inputs: Inputs, releases: Any, delta: float, brought: Iterable[Bound] = ()) -> Claim:
    """What the theorem that the inputs name says of a run with these releases at `delta`.

    inputs: see `claims.inputs`; releases: columns, or a data frame; brought: see `bound_of`. A
    theorem that is stated at a larger delta of its own says nothing at `delta`, and the claim is at
    that one. InputError for inputs from which nothing follows.
    """
    bound = bound_of(inputs, brought)
    try:
        assert bound.formula is not None
        epsilon, unmet = bound.formula(inputs, columns_of(releases), delta)
        epsilon = np.broadcast_to(np.asarray(epsilon, float), inputs["agents"])
        stated, unmet = float(inputs.get("delta", 0.0)), [*inputs["unmet"], *unmet]
        if not (epsilon >= 0.0).all():
            raise ValueError(refusal(epsilon.tolist(), "epsilons >= 0"))
    except Exception as error:
        raise InputError(f"claim: inputs of {bound.name}: {raised(error)}") from error
    if stated > delta:
        unmet.insert(0, f"it is stated at delta {stated:g}")
    return Claim(bound, epsilon, max(delta, stated), bound.method, tuple(unmet))
