"""Several numbers in one register of the processor: loops whose vectors desim itself lays out.

Left alone, the compiler takes sixteen rows at a time and the last four of twenty one by one, which
is a third of the time. In compiled code `Lanes` have the operators of numbers; each
lane's bits are those that it has alone, on every machine (narrow registers: several of them). In
plain Python lanes are small arrays, and every function here means what its body says.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import overload

from desim.numerics.jit import LEAN
from desim.numerics.registers import (
    I32,
    ROUNDED,
    Lanes,
    alike,
    compiled_as,
    lowered,
    of_width,
    pointer_to,
    wide,
)


def _where(array, result, kinds):
    """The result, if numbers of such an array are side by side, and of one of these types."""
    return result if array.layout == "C" and array.dtype in kinds else None


def _stored(array, result, lanes):
    """The result, if such lanes may be written to the array: float32 rounds them."""
    return _where(array, result, ROUNDED if lanes.inner == types.float64 else (lanes.inner,))


def _rounded(builder, value, lanes, dtype):
    """Lanes as numbers of the array that they go to, and their type."""
    kind = Lanes(dtype, lanes.width)
    return value if lanes.inner == dtype else builder.fptrunc(value, lowered(kind)), kind


def _loaded(like, array):
    """Lanes of the array's numbers, as many as `like` has."""
    return _where(array, Lanes(array.dtype, like.width), (types.float64, types.uint64))


def _declared(builder, name, result, arguments):
    """A function of the compiler's own."""
    known = builder.module.globals.get(name)
    return known or ir.Function(builder.module, ir.FunctionType(result, arguments), name)


def zeros(width):
    """`width` (a literal) lanes of 0.0."""
    return np.zeros(width)


@compiled_as(zeros, lambda width: of_width(types.float64, width))
def _zeros(context, builder, signature, args):
    return ir.Constant(lowered(signature.return_type), None)


def spread(n):
    """Zeros to go through n places with: eight lanes in compiled code, n in plain Python."""
    return np.zeros(n)


@compiled_as(spread, lambda n: Lanes(types.float64, 8))
def _spread(context, builder, signature, args):
    return ir.Constant(lowered(signature.return_type), None)


def width(lanes):
    """How many lanes these are."""
    return lanes.size


@compiled_as(width, lambda lanes: types.int64)
def _width(context, builder, signature, args):
    return ir.Constant(ir.IntType(64), signature.args[0].width)


def places(like):
    """0, 1, ... as uint64, as many lanes as `like` has."""
    return np.arange(like.size, dtype=np.uint64)


@compiled_as(places, lambda like: Lanes(types.uint64, like.width))
def _places(context, builder, signature, args):
    return ir.Constant(lowered(signature.return_type), list(range(signature.return_type.width)))


def load(like, array, place):
    """As many lanes as `like` has from a C-contiguous array, on from number `place` of it."""
    return array.reshape(-1)[place : place + like.size].copy()


@compiled_as(load, lambda like, array, place: _loaded(like, array))
def _load(context, builder, signature, args):
    pointer = pointer_to(
        context, builder, signature.args[1], args[1], args[2], signature.return_type
    )
    lanes = builder.load(pointer)
    lanes.align = 8
    return lanes


def load_one(like, array, place):
    """As many lanes as `like` has, all of them number `place` of a C-contiguous array."""
    return array.reshape(-1)[place]  # plain Python spreads it where lanes meet it


@compiled_as(load_one, lambda like, array, place: _loaded(like, array))
def _load_one(context, builder, signature, args):
    kind = signature.args[1]
    pointer = pointer_to(context, builder, kind, args[1], args[2], kind.dtype)
    return wide(builder, None, builder.load(pointer), signature.return_type)


def store(array, place, lanes):
    """Write lanes to a C-contiguous array, on from number `place` of it."""
    array.reshape(-1)[place : place + lanes.size] = lanes


@compiled_as(store, lambda array, place, lanes: _stored(array, types.void, lanes))
def _store(context, builder, signature, args):
    array, _, lanes = signature.args
    value, kind = _rounded(builder, args[2], lanes, array.dtype)
    pointer = pointer_to(context, builder, array, args[0], args[1], kind)
    builder.store(value, pointer).align = array.dtype.bitwidth // 8
    return context.get_dummy_value()


def pick(condition, yes, no):
    """`yes` where the condition holds, else `no`, as float64; of lanes each by itself."""
    return np.where(condition, yes, no)[()]


@compiled_as(pick, lambda condition, yes, no: alike(condition, types.float64))
def _pick(context, builder, signature, args):
    result, both = signature.return_type, zip(signature.args[1:], args[1:], strict=True)
    if isinstance(result, Lanes):
        values = [wide(builder, kind, value, result) for kind, value in both]
    else:
        values = [context.cast(builder, value, kind, result) for kind, value in both]
    return builder.select(args[0], *values)


def _rebound(context, builder, signature, args):
    return builder.bitcast(args[0], lowered(signature.return_type))


def bits_of(x):
    """The 64 bits of a float64 as uint64, or of each lane."""
    return np.asarray(x, np.float64).view(np.uint64)[()]


def float_of(bits):
    """The float64 with these 64 bits, or of each lane."""
    return np.asarray(bits, np.uint64).view(np.float64)[()]


compiled_as(bits_of, lambda x: alike(x, types.uint64))(_rebound)
compiled_as(float_of, lambda bits: alike(bits, types.float64))(_rebound)


def root(x):
    """The square root, correctly rounded."""
    return np.sqrt(x)


@compiled_as(root, lambda x: x)
def _root(context, builder, signature, args):
    kind = lowered(signature.return_type)
    name = f"llvm.sqrt.v{kind.count}f64" if isinstance(kind, ir.VectorType) else "llvm.sqrt.f64"
    return builder.call(_declared(builder, name, kind, [kind]), args)


def store_pairs(array, place, first, second):
    """Write lanes a and b as a0, b0, a1, b1, ... to a C-contiguous array, on from `place`.

    What does not fit any more is left out.
    """
    pairs = np.stack([first, second], 1).ravel()[: array.size - place]
    array.reshape(-1)[place : place + pairs.size] = pairs


@compiled_as(store_pairs, lambda array, place, first, second: _stored(array, types.void, first))
def _store_pairs(context, builder, signature, args):
    array, _, lanes, _ = signature.args
    pairs = Lanes(lanes.inner, 2 * lanes.width)
    order = [lane + side * lanes.width for lane in range(lanes.width) for side in (0, 1)]
    mixed = ir.Constant(ir.VectorType(I32, pairs.width), order)
    value, pairs = _rounded(builder, builder.shuffle_vector(*args[2:], mixed), pairs, array.dtype)
    size = context.make_array(array)(context, builder, args[0]).nitems
    room = wide(builder, None, builder.sub(size, args[1]), Lanes(types.uint64, pairs.width))
    fits = builder.icmp_unsigned("<", ir.Constant(room.type, list(range(pairs.width))), room)
    pointer = pointer_to(context, builder, array, args[0], args[1], pairs)
    bits = array.dtype.bitwidth
    name = f"llvm.masked.store.v{pairs.width}f{bits}.p0"
    arguments = [value.type, pointer.type, I32, fits.type]
    function = _declared(builder, name, ir.VoidType(), arguments)
    builder.call(function, [value, pointer, ir.Constant(I32, bits // 8), fits])
    return context.get_dummy_value()


def in_lanes(n, step, parts):
    """Call step(zero lanes, place, parts) so that places 0 .. n - 1 have a lane each.

    Compiled, eight at a time as long as there are so many, then four, then each by itself; in plain
    Python all at once.
    """
    step(np.zeros(n), 0, parts)


@overload(in_lanes, jit_options=LEAN, strict=False)
def _in_lanes(n, step, parts):
    return in_eights


def in_eights(n, step, parts):
    """What compiled code does for `in_lanes`."""
    h = 0
    while h + 8 <= n:
        step(zeros(8), h, parts)
        h += 8
    while h + 4 <= n:
        step(zeros(4), h, parts)
        h += 4
    while h < n:
        step(zeros(1), h, parts)
        h += 1
