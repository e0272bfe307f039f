"""Compiled functions that others call by their address, so that there is machine code of them once.

What a function calls otherwise is linked into it, and a large one that many call is made anew for
each: so would be the clock of compiled rounds, for the formulas of every method.
"""

from typing import Any

from llvmlite import ir
from numba import _dispatcher, typeof, types
from numba.core import cgutils
from numba.core.dispatcher import Dispatcher

from desim.numerics import plain
from desim.numerics.registers import compiled_as

_found: dict[tuple[Dispatcher, bytes], int] = {}


def address_of(kernel: Any, arguments: tuple[Any, ...]) -> int:
    """Where the machine code of a kernel for arguments like these is, compiled if it is not yet.

    0 where nothing is ever compiled. Types are named once: those of a clock take milliseconds.
    """
    if not isinstance(kernel, Dispatcher):
        return 0
    alike = kernel, _dispatcher.compute_fingerprint(arguments)
    if alike not in _found:
        kinds = tuple(map(typeof, arguments))
        kernel.compile(kinds)
        code = kernel.overloads[kinds]
        _found[alike] = code.library.get_pointer_to_function(code.fndesc.llvm_func_name)
    return _found[alike]


def called(kernel, address, arguments):
    """Call a kernel that returns nothing by its address, with arguments as `address_of` has seen.

    Plain Python needs no address.
    """
    plain.twin(kernel)(*arguments)


def _known(kernel: Any, address: Any, arguments: Any) -> Any:
    """No type for arguments of which the kernel has no code: to call it with these would crash."""
    return types.none if types.unliteral(arguments).types in kernel.dispatcher.overloads else None


@compiled_as(called, _known)
def _called(context, builder, signature, args):
    kinds = types.unliteral(signature.args[2]).types
    values = cgutils.unpack_tuple(builder, args[2])
    kind = context.call_conv.get_function_type(types.none, kinds)
    place = builder.inttoptr(args[1], ir.PointerType(kind))
    status, _ = context.call_conv.call_function(builder, place, types.none, kinds, values)
    with cgutils.if_unlikely(builder, status.is_error):
        context.call_conv.return_status_propagate(builder, status)
    return context.get_dummy_value()
