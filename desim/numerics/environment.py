"""What the environment says of compiling and threads, looked at before anything is begun."""

from desim.numerics.jit import threads
from desim.numerics.plain import when


def environment() -> None:
    """InputError for what DESIM_COMPILE and DESIM_THREADS say and nobody understands."""
    when()
    threads()
