"""Several numbers in one register of the processor: loops whose vectors desim itself lays out.

Left alone, the compiler takes sixteen rows at a time and the last four of twenty one by one, which
is a third of the time. In compiled code `Lanes` have the operators of numbers; each
lane's bits are those that it has alone, on every machine (narrow registers: several of them). In
plain Python lanes are small arrays, and every function here means what its body says.
"""

import operator

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import lower_builtin, models, register_model, type_callable

from desim.jit import lean_inline

_I32 = ir.IntType(32)
_INNER = {
    types.float64: ir.DoubleType(),
    types.uint64: ir.IntType(64),
    types.boolean: ir.IntType(1),
}


class Lanes(types.Type):  # type: ignore[misc]
    """`width` numbers of type `inner`: float64, uint64, or boolean as comparisons give."""

    def __init__(self, inner, width):
        self.inner, self.width = inner, width
        super().__init__(name=f"Lanes({inner}, {width})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager, lanes):
        super().__init__(manager, lanes, _lowered(lanes))


def _lowered(kind):
    """The compiler's type of lanes, or of one number."""
    if isinstance(kind, Lanes):
        return ir.VectorType(_INNER[kind.inner], kind.width)
    return _INNER[kind]


def _inner(kind):
    """The type of one number of lanes, or the kind itself."""
    return kind.inner if isinstance(kind, Lanes) else types.unliteral(kind)


def _alike(kind, inner):
    """As many lanes as the kind has, or one number, of another type."""
    return Lanes(inner, kind.width) if isinstance(kind, Lanes) else inner


def _of_width(inner, width):
    """Lanes of a literal width; of any other there are none."""
    return Lanes(inner, width.literal_value) if isinstance(width, types.Literal) else None


def _compiled(function, result):
    """Decorate what writes a call of a function; result: its type from those of the arguments."""

    def decorate(build):
        type_callable(function)(lambda context: result)
        lower_builtin(function, *[types.Any] * result.__code__.co_argcount)(build)
        return build

    return decorate


def _wide(builder, kind, value, lanes):
    """A value as lanes: itself, or as many copies of a number."""
    if isinstance(kind, Lanes):
        return value
    vector = _lowered(lanes)
    nothing = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(_I32, 0))
    zeros = ir.Constant(ir.VectorType(_I32, lanes.width), [0] * lanes.width)
    return builder.shuffle_vector(first, nothing, zeros)


def _pointer(context, builder, kind, array, place, pointed):
    """The address of number `place` in an array's memory, as a pointer to the type `pointed`."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [place]), _lowered(pointed).as_pointer())


def _where(array, result):
    """The result, if the array is C-contiguous; of others numbers are not side by side."""
    return result if array.layout == "C" else None


def _declared(builder, name, result, arguments):
    """A function of the compiler's own."""
    known = builder.module.globals.get(name)
    return known or ir.Function(builder.module, ir.FunctionType(result, arguments), name)


def zeros(width):
    """`width` (a literal) lanes of 0.0."""
    return np.zeros(width)


@_compiled(zeros, lambda width: _of_width(types.float64, width))
def _zeros(context, builder, signature, args):
    return ir.Constant(_lowered(signature.return_type), None)


def places(like):
    """0, 1, ... as uint64, as many lanes as `like` has."""
    return np.arange(like.size, dtype=np.uint64)


@_compiled(places, lambda like: Lanes(types.uint64, like.width))
def _places(context, builder, signature, args):
    return ir.Constant(_lowered(signature.return_type), list(range(signature.return_type.width)))


def load(like, array, place):
    """As many lanes as `like` has from a C-contiguous array, on from number `place` of it."""
    return array.reshape(-1)[place : place + like.size].copy()


@_compiled(load, lambda like, array, place: _where(array, Lanes(array.dtype, like.width)))
def _load(context, builder, signature, args):
    pointer = _pointer(context, builder, signature.args[1], args[1], args[2], signature.return_type)
    lanes = builder.load(pointer)
    lanes.align = 8
    return lanes


def load_one(like, array, place):
    """As many lanes as `like` has, all of them number `place` of a C-contiguous array."""
    return np.full(like.size, array.reshape(-1)[place])


@_compiled(load_one, lambda like, array, place: _where(array, Lanes(array.dtype, like.width)))
def _load_one(context, builder, signature, args):
    kind = signature.args[1]
    pointer = _pointer(context, builder, kind, args[1], args[2], kind.dtype)
    return _wide(builder, None, builder.load(pointer), signature.return_type)


def store(array, place, lanes):
    """Write lanes to a C-contiguous array, on from number `place` of it."""
    array.reshape(-1)[place : place + lanes.size] = lanes


@_compiled(store, lambda array, place, lanes: _where(array, types.void))
def _store(context, builder, signature, args):
    pointer = _pointer(context, builder, signature.args[0], args[0], args[1], signature.args[2])
    builder.store(args[2], pointer).align = 8
    return context.get_dummy_value()


def pick(condition, yes, no):
    """`yes` where the condition holds, else `no`, as float64; of lanes each by itself."""
    return np.where(condition, yes, no)[()]


@_compiled(pick, lambda condition, yes, no: _alike(condition, types.float64))
def _pick(context, builder, signature, args):
    result, both = signature.return_type, zip(signature.args[1:], args[1:], strict=True)
    if isinstance(result, Lanes):
        values = [_wide(builder, kind, value, result) for kind, value in both]
    else:
        values = [context.cast(builder, value, kind, result) for kind, value in both]
    return builder.select(args[0], *values)


def _rebound(context, builder, signature, args):
    return builder.bitcast(args[0], _lowered(signature.return_type))


def bits_of(x):
    """The 64 bits of a float64 as uint64, or of each lane."""
    return np.asarray(x, np.float64).view(np.uint64)[()]


def float_of(bits):
    """The float64 with these 64 bits, or of each lane."""
    return np.asarray(bits, np.uint64).view(np.float64)[()]


_compiled(bits_of, lambda x: _alike(x, types.uint64))(_rebound)
_compiled(float_of, lambda bits: _alike(bits, types.float64))(_rebound)


def root(x):
    """The square root, correctly rounded."""
    return np.sqrt(x)


@_compiled(root, lambda x: x)
def _root(context, builder, signature, args):
    kind = _lowered(signature.return_type)
    name = f"llvm.sqrt.v{kind.count}f64" if isinstance(kind, ir.VectorType) else "llvm.sqrt.f64"
    return builder.call(_declared(builder, name, kind, [kind]), args)


def store_pairs(array, place, first, second):
    """Write lanes a and b as a0, b0, a1, b1, ... to a C-contiguous array, on from `place`.

    What does not fit any more is left out.
    """
    pairs = np.stack([first, second], 1).ravel()[: array.size - place]
    array.reshape(-1)[place : place + pairs.size] = pairs


@_compiled(store_pairs, lambda array, place, first, second: _where(array, types.void))
def _store_pairs(context, builder, signature, args):
    kind, lanes = signature.args[0], signature.args[2]
    pairs = Lanes(lanes.inner, 2 * lanes.width)
    order = [lane + side * lanes.width for lane in range(lanes.width) for side in (0, 1)]
    mask = ir.Constant(ir.VectorType(_I32, pairs.width), order)
    mixed = builder.shuffle_vector(*args[2:], mask)
    size = context.make_array(kind)(context, builder, args[0]).nitems
    room = _wide(builder, None, builder.sub(size, args[1]), Lanes(types.uint64, pairs.width))
    order = ir.Constant(room.type, list(range(pairs.width)))
    fits = builder.icmp_unsigned("<", order, room)
    pointer = _pointer(context, builder, kind, args[0], args[1], pairs)
    name = f"llvm.masked.store.v{pairs.width}f64.p0"
    arguments = [mixed.type, pointer.type, _I32, fits.type]
    function = _declared(builder, name, ir.VoidType(), arguments)
    builder.call(function, [mixed, pointer, ir.Constant(_I32, 8), fits])
    return context.get_dummy_value()


def _operate(operation, emits, result=None):
    """Give lanes a binary operation: {type: what writes it}; one of both sides may be a number."""

    def kind(a, b):
        lanes = a if isinstance(a, Lanes) else b
        fits = isinstance(lanes, Lanes) and _inner(a) == _inner(b) and lanes.inner in emits
        return Lanes(result or lanes.inner, lanes.width) if fits else None

    def build(context, builder, signature, args):
        lanes = next(one for one in signature.args if isinstance(one, Lanes))
        pairs = zip(signature.args, args, strict=True)
        return emits[lanes.inner](builder, *(_wide(builder, *pair, lanes) for pair in pairs))

    type_callable(operation)(lambda context: kind)
    for both in ((Lanes, Lanes), (Lanes, types.Number), (types.Number, Lanes)):
        lower_builtin(operation, *both)(build)


_REAL, _WORD, _ = _INNER
_BUILD = ir.IRBuilder
_operate(operator.add, {_REAL: _BUILD.fadd, _WORD: _BUILD.add})
_operate(operator.sub, {_REAL: _BUILD.fsub})
_operate(operator.mul, {_REAL: _BUILD.fmul})
_operate(operator.truediv, {_REAL: _BUILD.fdiv})
_operate(operator.and_, {_WORD: _BUILD.and_})
_operate(operator.or_, {_WORD: _BUILD.or_})
_operate(operator.xor, {_WORD: _BUILD.xor})
_operate(operator.lshift, {_WORD: _BUILD.shl})
_operate(operator.rshift, {_WORD: _BUILD.lshr})


def _compared(operation, sign):
    def reals(builder, a, b):
        return builder.fcmp_ordered(sign, a, b)

    def words(builder, a, b):
        return builder.icmp_unsigned(sign, a, b)

    _operate(operation, {_REAL: reals, _WORD: words}, types.boolean)


_compared(operator.lt, "<")
_compared(operator.gt, ">")
_compared(operator.eq, "==")


@lower_builtin(operator.neg, Lanes)
def _negative(context, builder, signature, args):
    return builder.fneg(args[0])


type_callable(operator.neg)(lambda context: lambda x: x if isinstance(x, Lanes) else None)


@lean_inline
def in_lanes(n, step, parts):
    """Call step(zero lanes, place, parts) so that places 0 .. n - 1 have a lane each.

    Eight at a time as long as there are so many, then four, then each by itself.
    """
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
