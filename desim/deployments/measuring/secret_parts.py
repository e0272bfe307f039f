"""What the parts of a secure sum take on this machine, as deployments do them: see `masking`."""

import secrets
import time
from collections.abc import Callable

import numpy as np

from desim.deployments.masking import (
    PRIME,
    SECRET,
    agreed,
    mask,
    pair,
    required,
    revealed,
    shared,
    words,
)

NUMBERS = 1 << 17  # of a mask
REPEATS, TIMES = 5, 50  # the least of several times is that of a machine with nothing else to do
SHARES = 10


def quickest(work: Callable[[], object]) -> float:
    """Seconds of the processor that `work` takes where nothing disturbs it."""
    found = []
    for _ in range(REPEATS):
        begun = time.process_time()
        for _ in range(TIMES):
            work()
        found.append((time.process_time() - begun) / TIMES)
    return min(found)


def secret_parts(bits: int = 24) -> dict[str, float]:
    """What `agree` s, `expand` bytes/s and `share` s of privacy.secure are here.

    bits: of the numbers that are masked. expand: of these, with adding them to others; share: the
    mean of one that is made and one that is used, of ten of which seven are enough. InputError
    without the library.
    """
    required()
    own, other, seed = pair(), pair().public, secrets.token_bytes(SECRET)
    total, places = np.zeros(NUMBERS, words(bits)), range(1, SHARES + 1)
    some = shared(secrets.randbelow(PRIME), 7, places)[:7]
    made = quickest(lambda: shared(1, 7, places)) / SHARES
    used = quickest(lambda: revealed(some)) / len(some)
    return {
        "agree": quickest(lambda: agreed(own, other, b"mask")),
        "expand": NUMBERS * bits / 8 / quickest(lambda: mask(total, seed, 1)),
        "share": 0.5 * (made + used),
    }


def in_words(parts: dict[str, float]) -> str:
    """The keys of privacy.secure, as a scenario writes them."""
    agree, share = (f"{1e6 * parts[name]:.3g} us" for name in ("agree", "share"))
    expand = f"{parts['expand'] / 1e9:.3g} GB/s"
    return f"privacy.secure: {{agree: {agree}, expand: {expand}, share: {share}}}"
