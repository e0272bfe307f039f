"""Fed-PLT in JAX: one compiled program, scanned over rounds and local steps, in float64."""

from functools import partial

import jax
import jax.numpy as jnp
from worker import Problem, Run, serve

jax.config.update("jax_enable_x64", True)


def make(p: Problem) -> Run:
    """All agents in one array, everything in one jit."""
    A, b = jnp.asarray(p.A), jnp.asarray(p.b)
    agents, rows, dim = A.shape

    @partial(jax.jit, static_argnums=0)
    def compiled(rounds, A, b):  # type: ignore[no-untyped-def]
        def step(x, v):  # type: ignore[no-untyped-def]
            slope = -b / (1.0 + jnp.exp(b * jnp.einsum("nmd,nd->nm", A, x)))
            g = jnp.einsum("nmd,nm->nd", A, slope) / rows + p.weight * x
            return x - p.gamma * (g + (x - v) / p.rho)

        def round_(state, _):  # type: ignore[no-untyped-def]
            x, z = state
            y = z.mean(axis=0)
            v = 2.0 * y - z
            x = jax.lax.scan(lambda x, _: (step(x, v), None), x, None, length=p.epochs)[0]
            return (x, z + 2.0 * (x - y)), None

        start = (jnp.zeros((agents, dim)), jnp.zeros((agents, dim)))
        return jax.lax.scan(round_, start, None, length=rounds)[0][0]

    return lambda rounds: compiled(rounds, A, b).block_until_ready()


if __name__ == "__main__":
    serve(make, ("jax", "jaxlib"))
