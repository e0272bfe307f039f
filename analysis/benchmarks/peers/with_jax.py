"""Fed-PLT in JAX: one compiled program, scanned over rounds and local steps, in float64.

`noisy` adds a normal number to each number of each local step, drawn by JAX.
"""

import sys
from functools import partial

import jax
import jax.numpy as jnp
from worker import Problem, Run, serve

jax.config.update("jax_enable_x64", True)
TAU = 0.01


def make(p: Problem, noisy: bool = False) -> Run:
    """All agents in one array, everything in one jit."""
    A, b = jnp.asarray(p.A), jnp.asarray(p.b)
    agents, rows, dim = A.shape

    @partial(jax.jit, static_argnums=0)
    def compiled(rounds, A, b):  # type: ignore[no-untyped-def]
        def step(x, v, key):  # type: ignore[no-untyped-def]
            slope = -b / (1.0 + jnp.exp(b * jnp.einsum("nmd,nd->nm", A, x)))
            g = jnp.einsum("nmd,nm->nd", A, slope) / rows + p.weight * x
            x = x - p.gamma * (g + (x - v) / p.rho)
            return x + TAU * jax.random.normal(key, x.shape) if noisy else x

        def round_(state, number):  # type: ignore[no-untyped-def]
            x, z = state
            y = z.mean(axis=0)
            v = 2.0 * y - z
            keys = jax.random.split(jax.random.fold_in(start_key, number), p.epochs)
            x = jax.lax.scan(lambda x, key: (step(x, v, key), None), x, keys)[0]
            return (x, z + 2.0 * (x - y)), None

        start_key, start = jax.random.key(1), (jnp.zeros((agents, dim)), jnp.zeros((agents, dim)))
        return jax.lax.scan(round_, start, jnp.arange(rounds))[0][0]

    return lambda rounds: compiled(rounds, A, b).block_until_ready()


if __name__ == "__main__":
    serve(partial(make, noisy=sys.argv[5] == "noisy"), ("jax", "jaxlib"))
