"""How often properties are tried: an eighth of the examples in the quick loop, `-m 'not slow'`."""

quick = False  # conftest sets it before any test is read


def examples(count: int) -> int:
    """So many examples of `count` are tried."""
    return max(count // 8, 3) if quick else count
