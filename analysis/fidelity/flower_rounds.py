"""Rounds of Flower 1.6: fit at all clients, an evaluation at the server, one at all clients.

A plug-in for `analysis.fidelity.grid5000`: messages have their sizes and computations their
seconds; nothing is trained.
"""

import numpy as np

from desim.method import Array, Clients, Count, Hub, Method, NonNegative, Program, Strict

SCALARS = 256  # bits of the reply to an evaluation


class Parameters(Strict):
    """What a round computes and sends."""

    epochs: Count = 1
    """local epochs, each a gradient of all rows"""
    validation: NonNegative = 0.0
    """what a pass over a client's rows for validation takes, in epochs"""
    size: Count = 44_700_000
    """bytes of a model"""


class FlowerRounds(Method):
    """Clients validate after training, and when they are asked to evaluate.

    The server evaluates while it takes in what fit returns: compute.coordinator.number.
    """

    name = "flower-rounds"
    kind = "coordinator"
    summary = "the messages and computations of Flower's rounds, without training"
    paper = "Beutel et al. 2020, arXiv 2007.14390"
    Parameters = Parameters
    policies = ("all",)

    def coordinator(self, hub: Hub) -> Program:
        """One round after the other."""
        model, bits = np.zeros(self.problem.dim), 8 * self.parameters.size
        check = self.parameters.validation * self.problem.rows
        work = self.parameters.epochs * self.problem.rows + check
        hub.start(x=np.zeros((hub.agents, self.problem.dim)))
        hub.publish(model)
        while hub.open:
            who = hub.invite()
            hub.call(who, self.returned, model, work=work, bits=bits, reply_bits=bits)
            yield hub.collect()
            hub.call(who, self.returned, model, work=check, bits=bits, reply_bits=SCALARS)
            yield hub.collect()
            hub.publish(model)

    def returned(self, us: Clients, model: Array) -> Array:
        """The model as it came."""
        return model
