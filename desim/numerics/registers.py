"""The type of several numbers in one register, and its operators in compiled code."""

import operator

from llvmlite import ir
from numba import types
from numba.extending import lower_builtin, models, register_model, type_callable

I32 = ir.IntType(32)
INNER = {
    types.float32: ir.FloatType(),  # only in memory
    types.float64: ir.DoubleType(),
    types.uint64: ir.IntType(64),
    types.boolean: ir.IntType(1),
}
ROUNDED = (types.float64, types.float32)


class Lanes(types.Type):  # type: ignore[misc]
    """`width` numbers of type `inner`: float64, uint64, or boolean as comparisons give."""

    def __init__(self, inner, width):
        self.inner, self.width = inner, width
        super().__init__(name=f"Lanes({inner}, {width})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager, lanes):
        super().__init__(manager, lanes, lowered(lanes))


def lowered(kind):
    """The compiler's type of lanes, or of one number."""
    if isinstance(kind, Lanes):
        return ir.VectorType(INNER[kind.inner], kind.width)
    return INNER[kind]


def inner_of(kind):
    """The type of one number of lanes, or the kind itself."""
    return kind.inner if isinstance(kind, Lanes) else types.unliteral(kind)


def alike(kind, inner):
    """As many lanes as the kind has, or one number, of another type."""
    return Lanes(inner, kind.width) if isinstance(kind, Lanes) else inner


def of_width(inner, width):
    """Lanes of a literal width; of any other there are none."""
    return Lanes(inner, width.literal_value) if isinstance(width, types.Literal) else None


def compiled_as(function, result):
    """Decorate what writes a call of a function; result: its type from those of the arguments."""

    def decorate(build):
        type_callable(function)(lambda context: result)
        lower_builtin(function, *[types.Any] * result.__code__.co_argcount)(build)
        return build

    return decorate


def wide(builder, kind, value, lanes):
    """A value as lanes: itself, or as many copies of a number."""
    if isinstance(kind, Lanes):
        return value
    vector = lowered(lanes)
    nothing = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(I32, 0))
    zeros = ir.Constant(ir.VectorType(I32, lanes.width), [0] * lanes.width)
    return builder.shuffle_vector(first, nothing, zeros)


def pointer_to(context, builder, kind, array, place, pointed):
    """The address of number `place` in an array's memory, as a pointer to the type `pointed`."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [place]), lowered(pointed).as_pointer())


def _operate(operation, emits, result=None):
    """Give lanes a binary operation: {type: what writes it}; one of both sides may be a number."""

    def kind(a, b):
        lanes = a if isinstance(a, Lanes) else b
        fits = isinstance(lanes, Lanes) and inner_of(a) == inner_of(b) and lanes.inner in emits
        return Lanes(result or lanes.inner, lanes.width) if fits else None

    def build(context, builder, signature, args):
        lanes = next(one for one in signature.args if isinstance(one, Lanes))
        pairs = zip(signature.args, args, strict=True)
        return emits[lanes.inner](builder, *(wide(builder, *pair, lanes) for pair in pairs))

    type_callable(operation)(lambda context: kind)
    for both in ((Lanes, Lanes), (Lanes, types.Number), (types.Number, Lanes)):
        lower_builtin(operation, *both)(build)


_REAL, _WORD = types.float64, types.uint64
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
