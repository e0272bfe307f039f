"""Models of JAX: one hidden layer, also with a random one, and a convolution."""

import math

import jax
import jax.numpy as jnp

from desim.jax import JaxModel


class Hidden(JaxModel):
    name = "jax-hidden"
    summary = "one hidden layer"

    def weights(self, key):
        one, two = jax.random.split(key)
        features = math.prod(self.facts.shape)
        return {
            "in": jax.random.normal(one, (features, 7)) / features**0.5,
            "bias": jnp.zeros(7),
            "out": jax.random.normal(two, (7, self.facts.classes)),
        }

    def outputs(self, weights, inputs):
        hidden = jnp.tanh(inputs.reshape(len(inputs), -1) @ weights["in"] + weights["bias"])
        return hidden @ weights["out"]


class Dropping(Hidden):
    name = "jax-dropping"

    def outputs(self, weights, inputs, key=None):
        hidden = jnp.tanh(inputs.reshape(len(inputs), -1) @ weights["in"] + weights["bias"])
        if key is not None:
            hidden = 2.0 * hidden * jax.random.bernoulli(key, 0.5, hidden.shape)
        return hidden @ weights["out"]


class Convolved(JaxModel):
    name = "jax-convolved"
    summary = "a convolution over the features"

    def weights(self, key):
        one, two = jax.random.split(key)
        return [jax.random.normal(one, (4, 1, 3)), jax.random.normal(two, (4, self.facts.classes))]

    def outputs(self, weights, inputs):
        waves = inputs.reshape(len(inputs), 1, -1)
        found = jax.lax.conv_general_dilated(waves, weights[0], (1,), "SAME")
        return jax.nn.relu(found).mean(2) @ weights[1]


class Line(JaxModel):
    name = "jax-line"
    summary = "a linear function, for numbers"
    labels = "numbers"

    def weights(self, key):
        return jax.random.normal(key, self.facts.shape)

    def outputs(self, weights, inputs):
        return inputs @ weights
