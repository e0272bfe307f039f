"""What the parts of a secure sum take on this machine, with the library of deployments' keys.

Agreements on secrets by X25519, masks grown by ChaCha20, and shares of a secret as values of a
random polynomial modulo 2^255 - 19 (Shamir 1979), of which as many as it has coefficients tell it.
"""

import secrets
import time
from collections.abc import Callable, Sequence

from desim.deployments.doors import NEEDED
from desim.errors import InputError

PRIME = 2**255 - 19
GROWN = 1 << 20  # bytes of a mask
REPEATS, TIMES = 5, 50  # the least of several times is that of a machine with nothing else to do
SHARES = 10


def shared(secret: int, least: int, shares: int) -> list[tuple[int, int]]:
    """So many shares (x, value) of a secret below PRIME, `least` of which tell it."""
    coefficients = [secret, *(secrets.randbelow(PRIME) for _ in range(least - 1))]
    found = []
    for x in range(1, shares + 1):
        value = 0
        for one in reversed(coefficients):
            value = (value * x + one) % PRIME
        found.append((x, value))
    return found


def told(some: Sequence[tuple[int, int]]) -> int:
    """The secret of these shares, if they are enough."""
    secret = 0
    for x, value in some:
        above, below = 1, 1
        for other, _ in some:
            if other != x:
                above, below = above * other % PRIME, below * (other - x) % PRIME
        secret += value * above * pow(below, -1, PRIME)
    return secret % PRIME


def quickest(work: Callable[[], object]) -> float:
    """Seconds of the processor that `work` takes where nothing disturbs it."""
    found = []
    for _ in range(REPEATS):
        begun = time.process_time()
        for _ in range(TIMES):
            work()
        found.append((time.process_time() - begun) / TIMES)
    return min(found)


def secret_parts() -> dict[str, float]:
    """What `agree` s, `expand` bytes/s and `share` s of privacy.secure are here.

    InputError without the library.
    share: the mean of one that is made and one that is used, of ten of which seven are enough.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    except ImportError as missing:
        raise InputError(f"privacy.trust: secure-sum: {NEEDED}") from missing
    own, other = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()
    zeros, key = bytes(GROWN), secrets.token_bytes(32)
    law = algorithms.ChaCha20(key, bytes(16))
    some = shared(secrets.randbelow(PRIME), 7, SHARES)[:7]
    made = quickest(lambda: shared(1, 7, SHARES)) / SHARES
    used = quickest(lambda: told(some)) / len(some)
    return {
        "agree": quickest(lambda: own.exchange(other)),
        "expand": GROWN / quickest(lambda: Cipher(law, mode=None).encryptor().update(zeros)),
        "share": 0.5 * (made + used),
    }


def in_words(parts: dict[str, float]) -> str:
    """The keys of privacy.secure, as a scenario writes them."""
    agree, share = (f"{1e6 * parts[name]:.3g} us" for name in ("agree", "share"))
    expand = f"{parts['expand'] / 1e9:.3g} GB/s"
    return f"privacy.secure: {{agree: {agree}, expand: {expand}, share: {share}}}"
