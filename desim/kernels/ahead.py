"""Asking memory for what is needed soon: it changes no number, only when its lines arrive."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from desim.jit import lean_inline
from desim.kernels.gradients import Data

LINE = 8  # numbers
MOST = 1 << 10  # numbers of one array that are asked for at once
LARGE = 1 << 15  # numbers of all agents from which on they do not stay in the nearest cache


@intrinsic
def _prefetch(typing: Any, array: Any, place: Any) -> Any:
    """Ask for the line with number `place` of a C-contiguous array."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        where = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(ask, [where, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), code


@lean_inline
def ask(array, low, high):
    """Ask for numbers low:high of a C-contiguous array of any shape."""
    for place in range(low, min(high, low + MOST), LINE):
        _prefetch(array, place)


@lean_inline
def ask_for_rows(i, flat_data):
    """Ask for the rows of agent i, where all agents' are more than the nearest cache holds."""
    data = Data(*flat_data)
    if data.A.size > LARGE:
        dim, low, high = data.A.shape[1], data.start[i], data.start[i + 1]
        ask(data.A, low * dim, high * dim)
        ask(data.transposed, low * dim, high * dim)
        ask(data.b, low, high)
