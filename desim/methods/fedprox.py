"""FedProx: federated averaging whose local training is pulled to the coordinator's model.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020, "Federated optimization in heterogeneous networks"
(arXiv 1812.06127), Algorithm 2: agents come near the minimiser of h_i(w) = f_i(w) + (mu/2) ||w -
x||^2, (2), from x, and the coordinator takes the mean. How near (the paper's gamma-inexactness) is
what `local` says: its steps are on h_i, and with solver exact gamma is 0. Agents are invited as
`participation` says; the paper draws them with probabilities p_k and weighs those drawn alike.
"""

from desim.method import Ingredients, Positive
from desim.methods import fedavg


class Parameters(fedavg.Parameters):
    """FedAvg's, and mu."""

    mu: Positive = 0.1
    """weight of the pull to the coordinator's model"""


class FedProx(fedavg.FedAvg):
    """FedAvg's coordinator; an agent's model x is the latest that it was sent."""

    name = "fedprox"
    summary = "federated averaging of local models that are pulled to the coordinator's"
    paper = "Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020"
    Parameters = Parameters
    cures = (*fedavg.FedAvg.cures, "algorithm.mu")
    no_exact = ""
    sent_model = forgetful = summed = True

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients, q=ingredients.parameters.mu)
