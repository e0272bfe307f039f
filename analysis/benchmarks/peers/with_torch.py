"""Federated averaging of a torch network by a bare loop; `networks` runs it.

PYTHON with_torch.py FILE CLIENTS ROUNDS    # prints the seconds of each round
"""

import json
import sys
import time

import torch
from network import images, network, trained
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def main() -> None:
    """Play, and print what it took."""
    torch.set_num_threads(1)
    file, clients, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    images(file)
    net, seconds = network(), []
    x = parameters_to_vector(net.parameters()).detach().clone()
    for _ in range(rounds):
        began, total = time.perf_counter(), torch.zeros_like(x)
        for i in range(clients):
            vector_to_parameters(x.clone(), net.parameters())
            trained(net, file, clients, i)
            total += parameters_to_vector(net.parameters()).detach()
        x = total / clients
        seconds.append(time.perf_counter() - began)
    print("RESULT", json.dumps({"rounds": seconds[1:], "version": f"torch {torch.__version__}"}))


if __name__ == "__main__":
    main()
