"""What the environment says of compiling and threads, looked at before anything is begun."""

from desim.compiling.jit import threads
from desim.compiling.plain import when


def environment() -> None:
    """InputError for what DESIM_COMPILE and DESIM_THREADS say and nobody understands."""
    when()
    threads()
