"""A number that several threads change at once: each change is whole, and seen by all."""

from numba import types

from desim.numerics.registers import compiled_as


def swapped(array, place, expected, new):
    """Set number `place` of array (n,) int64 to `new` if it is `expected`; return what it was.

    What a thread wrote before its change, whoever sees the change sees, too.
    """
    before = array[place]
    if before == expected:
        array[place] = new
    return before


@compiled_as(swapped, lambda array, place, expected, new: types.int64)
def _swapped(context, builder, signature, args):
    kinds = zip(args[1:], signature.args[1:], strict=True)
    place, expected, new = (context.cast(builder, a, kind, types.int64) for a, kind in kinds)
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    pair = builder.cmpxchg(builder.gep(data, [place]), expected, new, "seq_cst", "seq_cst")
    return builder.extract_value(pair, 0)
