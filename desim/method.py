"""The one door for methods: all that a method's file needs, in desim or beside it.

A method is a `Method` with `Parameters`, whose program is `agents(us: Us)` on a graph and
`coordinator(hub: Hub)` on a star. What a program waits for is a job: of `us` again where there is a
graph, of `Clients` where a coordinator calls. Only the theorems of papers lie elsewhere, in
desim.privacy.papers.
"""

from typing import TYPE_CHECKING, Any

from desim.arrays import Array, Int
from desim.errors import InputError, RunError, refusal, spelling
from desim.fields import (
    AutoShare,
    AutoStep,
    Count,
    Counts,
    Duration,
    Flag,
    Form,
    Fraction,
    Init,
    Local,
    Momentum,
    NonNegative,
    Number,
    Positive,
    Rate,
    Seconds,
    Several,
    Share,
    Step,
    StepOrNone,
    Strict,
    Text,
    Whole,
)
from desim.methods.shared.checked_gradients import (
    batch_gradient,
    gradient,
)
from desim.methods.shared.declarations import LOGISTIC, Ingredients, Method, Program
from desim.methods.shared.local_training import (
    auto_step,
    best_momentum,
    beyond,
    linearised_bound,
    stable_step,
    tied_momentum,
)
from desim.network.conditions.codec import DRIFTS, DUALS, KEEPS, LOSSY, ROUNDED, rounded
from desim.network.conditions.devices import overheads_of, speeds_of
from desim.network.conditions.participation import common_length
from desim.network.conditions.topology import random_matching, random_neighbours
from desim.network.timeline.computations import fitting
from desim.numerics.keys import seed_word
from desim.numerics.later import names_of
from desim.privacy.ledger.ledger import Mechanism, Terms, View, plain
from desim.privacy.ledger.mechanisms import (
    Allotted,
    Classical,
    DiscreteGaussian,
    DynamicZcdp,
    Gaussian,
    L2Laplace,
    Laplace,
    Noise,
    terms,
)
from desim.privacy.papers.claims import ALL, Bound, Inputs, by_agent, inputs, once, ratios, summed
from desim.privacy.papers.conversions import simple
from desim.problem.kernels.formulas import formulas
from desim.problem.kernels.sums import column_sums
from desim.problem.losses.regularizers import prox
from desim.problem.problem import Problem

_SHARED = "desim.methods.shared."

if TYPE_CHECKING:
    from desim.engine.clients import Clients
    from desim.engine.hub import Hub
    from desim.engine.requests import Heard, Replies
    from desim.engine.settings import Settings
    from desim.engine.us import Cohort as Us
    from desim.methods.shared.averages import Averages
    from desim.methods.shared.checked_kernels import (
        capped_losses,
        descend,
        estimates,
        minimise,
        quantize,
        sparsify,
    )
    from desim.methods.shared.consensus import ConsensusADMM
    from desim.methods.shared.edge_duals import EdgeDuals
    from desim.methods.shared.federated import Federated, Latest
    from desim.methods.shared.local_training import LocalTraining, oversized
    from desim.methods.shared.minimisation import ExactADMM, Minimisation, minimisers
    from desim.network.conditions.mixing import (
        against_themselves,
        dual_bound,
        mixing_matrix,
        mixing_weights,
    )
    from desim.problem.kernels.codecs import clamp, shares
    from desim.problem.kernels.compilable import Compilable
else:  # the types of what an engine hands over: no engine is imported for them
    Clients = Compilable = Us = Hub = Heard = Replies = Settings = Any
    __getattr__ = names_of({  # with the first method that needs them
        f"{_SHARED}averages": "Averages",
        f"{_SHARED}checked_kernels": "capped_losses descend estimates minimise quantize sparsify",
        f"{_SHARED}consensus": "ConsensusADMM",
        f"{_SHARED}edge_duals": "EdgeDuals",
        f"{_SHARED}federated": "Federated Latest",
        f"{_SHARED}local_training": "LocalTraining oversized",
        f"{_SHARED}minimisation": "ExactADMM Minimisation minimisers",
        "desim.network.conditions.mixing": "against_themselves dual_bound mixing_matrix "
        "mixing_weights",
        "desim.problem.kernels.codecs": "clamp shares",
    })  # fmt: skip

__all__ = [
    "ALL", "DRIFTS", "DUALS", "KEEPS", "LOGISTIC", "LOSSY", "ROUNDED", "Allotted", "Array",
    "AutoShare", "AutoStep", "Averages", "Bound", "Classical", "Clients", "Compilable",
    "ConsensusADMM", "Count", "Counts", "DiscreteGaussian", "Duration", "DynamicZcdp", "EdgeDuals",
    "ExactADMM", "Federated", "Flag", "Form", "Fraction", "Gaussian", "Heard", "Hub", "Ingredients",
    "Init", "InputError", "Inputs", "Int", "L2Laplace", "Laplace", "Latest", "Local",
    "LocalTraining", "Mechanism", "Method", "Minimisation", "Momentum", "Noise", "NonNegative",
    "Number", "Positive", "Problem", "Program", "Rate", "Replies", "RunError", "Seconds",
    "Settings", "Several", "Share", "Step", "StepOrNone", "Strict", "Terms", "Text", "Us", "View",
    "Whole", "against_themselves", "auto_step", "batch_gradient", "best_momentum", "beyond",
    "by_agent", "capped_losses", "clamp", "column_sums", "common_length", "descend", "dual_bound",
    "estimates", "fitting", "formulas", "gradient", "inputs", "linearised_bound", "minimise",
    "minimisers", "mixing_matrix", "mixing_weights", "once", "overheads_of", "oversized", "plain",
    "prox", "quantize", "random_matching", "random_neighbours", "ratios", "refusal", "rounded",
    "seed_word", "shares", "simple", "sparsify", "speeds_of", "spelling", "stable_step", "summed",
    "terms", "tied_momentum",
]  # fmt: skip
