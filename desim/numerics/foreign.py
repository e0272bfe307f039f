"""Calls of compiled functions that kernels did not know when they were compiled.

A handle is a number that holds the address of a table of functions of (u, b). It travels through
the kernels where the knee of the Huber loss does, so kernels stay in numba's cache on disk.

What such a function raises cannot pass the kernel that called it: it counts as nan, and is written
behind the table, from where `verify` raises it once the kernel has returned.
"""

import ctypes
import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from desim.numerics.jit import LEAN

VALUE, SLOPE, BEND = 0, 1, 2
ROW = 3  # numbers that are written of what a function raised: how often, and u and b of one time


class Table(NamedTuple):
    """What must outlive every call: addresses, notes of what was raised, code, and its source."""

    addresses: Any
    notes: Any
    code: tuple[Any, ...]
    functions: tuple[Callable[..., float], ...]


_kept: dict[float, Table] = {}


def handle_of(functions: tuple[Callable[..., float], ...]) -> float:
    """The handle of value, slope and bend (u, b), compiled for this process.

    What numba raises of one that it cannot compile has the name of that function as a note.
    """
    notes = (ctypes.c_double * (ROW * len(functions)))()
    table = (ctypes.c_void_p * len(functions))()
    functions = tuple(getattr(one, "py_func", one) for one in functions)  # of numba.njit
    code: list[Any] = list(functions)
    if not numba.config.DISABLE_JIT:
        places = [ctypes.addressof(notes) + 8 * ROW * k for k in range(len(code))]
        code = [_guarded(*pair) for pair in zip(functions, places, strict=True)]
        table[:] = [one.address for one in code]
    handle = float(struct.unpack("d", struct.pack("q", ctypes.addressof(table)))[0])
    _kept[handle] = Table(table, notes, tuple(code), functions)
    return handle


def _guarded(function: Callable[..., float], notes: int) -> Any:
    """The function compiled: where it raises it returns nan, and notes at that address when."""
    signature = types.float64(types.float64, types.float64)
    bare = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    try:
        inner = numba.njit(signature, error_model="numpy", **bare)(function)
    except Exception as error:
        error.add_note(function.__name__)
        raise
    attempt = _attempt(inner.overloads[signature.args], notes)
    guarded = numba.cfunc(signature, nopython=True, error_model="numpy")
    return guarded(lambda u, b: attempt(u, b))


def _attempt(inner: Any, notes: int) -> Any:
    """A call of the compiled function (u, b) that looks whether it raised.

    Numba's own `try` is compiled four times as long.
    """
    real = ir.DoubleType()

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        context.active_code_library.add_linking_library(inner.library)
        function = context.declare_function(builder.module, inner.fndesc)
        kinds = signature.return_type, signature.args
        status, found = context.call_conv.call_function(builder, function, *kinds, arguments)
        with builder.if_then(status.is_error, likely=False):
            first = builder.inttoptr(ir.Constant(ir.IntType(64), notes), real.as_pointer())
            for k, number in enumerate(arguments, 1):
                builder.store(number, builder.gep(first, [ir.Constant(ir.IntType(64), k)]))
            builder.store(builder.fadd(builder.load(first), ir.Constant(real, 1.0)), first)
        return builder.select(status.is_error, ir.Constant(real, math.nan), found)

    return intrinsic(lambda typing, u, b: (types.float64(types.float64, types.float64), code))


def raised(handle: float) -> tuple[float, ...]:
    """How often each function of this handle has raised in this process."""
    return tuple(_kept[handle].notes[::ROW])


def raise_again(handle: float, which: int) -> None:
    """Call a function, as Python, where it raised last: whoever catches it sees file and line."""
    table = _kept[handle]
    u, b = table.notes[ROW * which + 1 : ROW * which + ROW]
    try:
        table.functions[which](u, b)
    except Exception as error:
        error.add_note(f"at u = {u:g}, b = {b:g}")
        raise


def call(which: int, handle: float, u: float, b: float) -> float:
    """The value, slope or bend at (u, b)."""
    code = _kept[handle].code[which]
    return float(getattr(code, "ctypes", code)(u, b))  # compiled: the bits that kernels have


@intrinsic
def _call(typing: Any, which: Any, handle: Any, u: Any, b: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        which, handle, u, b = arguments
        word, real = ir.IntType(64), ir.DoubleType()
        function = ir.FunctionType(real, [real, real]).as_pointer()
        table = builder.inttoptr(builder.bitcast(handle, word), function.as_pointer())
        return builder.call(builder.load(builder.gep(table, [which])), [u, b])

    return types.float64(types.int64, types.float64, types.float64, types.float64), code


@overload(call, jit_options=LEAN, strict=False)
def _compiled_call(which: Any, handle: Any, u: Any, b: Any) -> Any:
    return lambda which, handle, u, b: _call(which, handle, u, b)
