"""Programs of methods as engines drive them: whatever one yields is a request, or told in words."""

from collections.abc import Callable, Generator
from typing import Any

from desim.engine.requests import COLLECT, Collect, Compute, Gather
from desim.errors import at, show

Program = Callable[[Any], Generator[Any, Any, None]]
REQUESTS: dict[str, tuple[type, ...]] = {
    "coordinator": (Collect,),
    "graph": (Compute, Gather),
    "central": (Compute, Gather),
}
WORDS = {
    "coordinator": "yield hub.collect()",
    "graph": "yield us.compute(...), us.gather(...) or us.arrived()",
    "central": "yield us.compute(...)",
}


def checked_requests(program: Program, kind: str, now: Callable[[], float]) -> Program:
    """The program of a method of that kind, whose every request is looked at.

    now: virtual time s. RunError, with the line, for a program that is no generator or yields
    something else.
    """
    known, allowed = REQUESTS[kind], WORDS[kind]

    def checked(desk: Any) -> Generator[Any, Any, None]:
        generator, answer = program(desk), None
        if not hasattr(generator, "send"):
            raise at(now(), f"algorithm: its program never yields; allowed: {allowed}")
        while True:
            try:
                request = generator.send(answer)
            except StopIteration:
                return
            if not isinstance(request, known):
                found = "None" if request is None else show(request)
                text = f"{_line(generator)} yields {found}"
                raise at(now(), f"algorithm: {text}; allowed: {allowed}")
            if request is not COLLECT and not desk.yielded(request):
                text = f"{_line(generator)} yields a request again, or later than another one"
                raise at(now(), f"algorithm: {text}; allowed: {allowed}, once and at once")
            answer = yield request
            if isinstance(request, Compute):
                desk.computed(request.value, answer)

    return checked


def _line(generator: Any) -> str:
    """Where the program, or what it yields from, stands."""
    while hasattr(getattr(generator, "gi_yieldfrom", None), "gi_frame"):
        generator = generator.gi_yieldfrom
    frame = getattr(generator, "gi_frame", None)
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}," if frame else "its program"
