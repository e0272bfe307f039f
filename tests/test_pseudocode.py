"""At least 35 % of a method's file is its pseudocode."""

import pytest

from tests.pseudocode import counted, shares

LEAST = 0.35

FILE = '''"""What it is.

From a paper.
"""

import math


class Method:
    """A method."""

    name = "one"

    def __init__(self, x0):
        self.x0 = x0

    def agents(self, us):
        us.x = self.step(us.x)
        yield

    def step(self, x):
        return root(x)

    def claim(self, releases):
        return unused(releases)


def root(x):

    return math.sqrt(x)


def unused(x):
    return x
'''


def test_at_least_a_third_of_a_method_is_its_pseudocode():
    found = shares()
    assert {name for name, share in found.items() if share < LEAST} == set()


def test_pseudocode_is_what_agents_do_and_what_that_names():
    assert counted(FILE) == (3 + 2 + 2, 15)


@pytest.mark.parametrize(
    ("before", "after", "inside"),
    [("def agents(self, us)", "def agents(self)", 0), ("return root(x)", "return x", 5)],
)
def test_what_nobody_reaches_is_none(before, after, inside):
    assert counted(FILE.replace(before, after))[0] == inside
