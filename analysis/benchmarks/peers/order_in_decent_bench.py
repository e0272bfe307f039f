"""FedLT and FedAvg in one decent-bench benchmark, in the order of the arguments: FedLT's hash.

Half of the agents are active in an iteration, drawn at random from one seed.
"""

import hashlib
import os
import sys

import numpy as np
from decent_array import interoperability as iop
from decent_array.types import Devices, Frameworks
from decent_bench import benchmark
from decent_bench.agents import Agent
from decent_bench.algorithms.federated import FedAvg
from decent_bench.networks import FedNetwork
from decent_bench.schemes import UniformActivationRate
from with_decent_bench import costs, method
from worker import read


def main() -> None:
    """Play both, hash one."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    p = read(sys.argv[1])
    benchmark.configure(Frameworks.NUMPY, Devices.CPU, seed=0, log_level=50)
    agents = [Agent(cost, UniformActivationRate(0.5)) for cost in costs(p)]
    average = FedAvg(step_size=p.gamma, num_local_steps=p.epochs)
    both = {"FedLT": method(p), "FedAvg": average}
    problem = benchmark.BenchmarkProblem(FedNetwork(agents))
    result = benchmark.benchmark([both[one] for one in sys.argv[2:]], problem, 30)
    states = next(found for one, found in result.states.items() if one.name == "FedLT")
    models = np.stack([iop.to_numpy(agent.x) for agent in states[0].clients()])
    out.write(hashlib.sha256(models.tobytes()).hexdigest()[:12])
    out.flush()


if __name__ == "__main__":
    main()
