"""Pure functions that may be asked of what is not known yet: a round to come, or its models.

An engine may run a program ahead of its numbers. What stands for one of them has a class that says
what such a function gives: `answers(one, function, arguments, names, columns)`.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


def of_unplayed(
    place: int, columns: bool = False, gives: Callable[[int], Any] | None = None
) -> Callable[[Function], Function]:
    """A decorator of a function whose argument number `place` may not be known yet.

    columns: it takes rounds in a column (rounds, 1), too, beside arrays with a row for each of
    them, and gives rows (rounds, ...) with the bits of each round alone. gives: how many columns,
    a number or a tuple, of rows (n, columns) once they are known; it sees us.who, round and live.
    """

    def decorated(function: Function) -> Function:
        known = list(signature(function).parameters)
        if len(known) <= place:  # a user's, which takes what it likes
            return function
        name = known[place]

        @wraps(function)
        def asked(*arguments: Any, **names: Any) -> Any:
            one = arguments[place] if place < len(arguments) else names.get(name)
            if gives and (called := getattr(type(one), "called", None)):
                return called(one, function, arguments, names, gives)
            if answers := getattr(type(one), "answers", None):
                return answers(one, function, arguments, names, columns)
            return function(*arguments, **names)

        return cast(Function, asked)

    return decorated
