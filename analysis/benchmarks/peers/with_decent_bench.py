"""Fed-PLT as decent-bench has it, by the name FedLT: its own loop and costs."""

from decent_array import interoperability as iop
from decent_array.types import Devices, Frameworks
from decent_bench import benchmark
from decent_bench.agents import Agent
from decent_bench.algorithms.federated import FedLT
from decent_bench.costs import L2RegularizerCost, LogisticRegressionCost
from decent_bench.networks import FedNetwork
from worker import Problem, Run, serve


def costs(p: Problem) -> list:
    """The cost of each agent; labels are 0 and 1 here."""
    agents, rows, dim = p.A.shape
    made = []
    for i in range(agents):
        labels = (p.b[i] + 1.0) / 2.0
        pairs = [
            (iop.from_numpy(p.A[i, h].copy()), iop.from_numpy(labels[h : h + 1].copy()))
            for h in range(rows)
        ]
        made.append(LogisticRegressionCost(pairs) + p.weight * L2RegularizerCost((dim,)))
    return made


def method(p: Problem) -> FedLT:
    """The method with the problem's parameters."""
    return FedLT(step_size=p.gamma, num_local_steps=p.epochs, penalty=p.rho)


def make(p: Problem) -> Run:
    """Agents that keep no history but the last state."""
    benchmark.configure(Frameworks.NUMPY, Devices.CPU, seed=0, log_level=50)
    parts = costs(p)

    def run(rounds: int) -> list:
        network = FedNetwork([Agent(cost, state_snapshot_period=rounds) for cost in parts])
        method(p).run(network, rounds)
        return [iop.to_numpy(agent.x) for agent in network.clients()]

    return run


if __name__ == "__main__":
    serve(make, ("decent-bench", "decent-array", "numpy"))
