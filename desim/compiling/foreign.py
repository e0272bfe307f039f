"""Calls of compiled functions that kernels did not know when they were compiled.

A handle is a number that holds the address of a table of functions of (u, b). It travels through
the kernels where the knee of the Huber loss does, so kernels stay in numba's cache on disk.
"""

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from desim.compiling.jit import LEAN

VALUE, SLOPE, BEND = 0, 1, 2
_kept: dict[float, tuple[Any, ...]] = {}  # tables and code must outlive every call


def handle_of(functions: tuple[Callable[..., float], ...]) -> float:
    """The handle of value, slope and bend (u, b), compiled for this process."""
    signature = types.float64(types.float64, types.float64)
    if numba.config.DISABLE_JIT:
        code: list[Any] = list(functions)
        table = (ctypes.c_void_p * len(code))()
    else:
        compile_ = numba.cfunc(signature, nopython=True, error_model="numpy")
        code = [compile_(function) for function in functions]
        table = (ctypes.c_void_p * len(code))(*(one.address for one in code))
    handle = float(struct.unpack("d", struct.pack("q", ctypes.addressof(table)))[0])
    _kept[handle] = (table, *code)
    return handle


def call(which: int, handle: float, u: float, b: float) -> float:
    """The value, slope or bend at (u, b)."""
    code = _kept[handle][1 + which]
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
