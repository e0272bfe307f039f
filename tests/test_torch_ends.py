"""Functions whose last bit depends on where a number lies: agents are then computed apart."""

import numpy as np
import pytest

from desim.problem.models.user_model import Facts, Rows

torch = pytest.importorskip("torch", reason="torch is not installed: the extra desim[torch]")
from torch import nn  # noqa: E402

from desim.problem.models.torch_look import same_at_ends  # noqa: E402
from desim.torch import TorchModel  # noqa: E402

FEATURES, INNER, ROWS, AGENTS = 20, 14, 97, 12


def network(activation):
    """A layer of one number's features, whose activations do not fill a processor's registers."""

    class Net(TorchModel):
        name, summary = "net", "one inner layer"

        def module(self):
            first = nn.Unflatten(1, (FEATURES, 1)), nn.Linear(1, INNER), activation()
            return nn.Sequential(*first, nn.Flatten(), nn.Linear(FEATURES * INNER, 2))

    return Net(None, Facts((FEATURES,), 2, "float32", "cpu", 3))


@pytest.mark.parametrize("activation", [nn.SiLU, nn.Sigmoid, nn.ELU, nn.Softplus, nn.Tanh])
def test_no_bit_depends_on_the_agents_that_are_computed_together(activation):
    model, rng = network(activation), np.random.default_rng(0)
    inputs = rng.normal(size=(AGENTS, ROWS, FEATURES)).astype(np.float32)
    labels, key = rng.integers(0, 2, (AGENTS, ROWS)), np.zeros(AGENTS, np.uint64)
    model.sample = Rows(inputs[0, :8], labels[0, :8], 5)
    start = model.initial(1)
    with model.computing():
        for _ in range(3):
            x = (start + 0.1 * rng.normal(size=(AGENTS, model.dim))).astype(np.float32)
            for clip in (np.inf, 0.5):
                alone = [
                    model.gradients(x[one], Rows(inputs[one], labels[one], key[:1]), clip)
                    for one in (slice(i, i + 1) for i in range(AGENTS))
                ]
                for n in (2, 5, AGENTS):
                    found = model.gradients(x[:n], Rows(inputs[:n], labels[:n], key[:n]), clip)
                    assert np.array_equal(found, np.concatenate(alone[:n]))


def test_a_function_that_ends_otherwise_is_found_and_others_are_not():
    given = torch.linspace(-1.0, 1.0, 9)
    assert same_at_ends(lambda: torch.relu(given) * given + 1.0)
    whole = torch.randn(7 * 4001)
    parts = torch.cat([torch.sigmoid(one.clone()) for one in whole.split(7)])
    assert same_at_ends(lambda: torch.sigmoid(given)) == torch.equal(parts, torch.sigmoid(whole))
