"""What a secure sum is made of: keys, encrypted shares of secrets, and masks that cancel.

Bonawitz et al. 2017 (doi 10.1145/3133956.3133982), Figure 4, towards a coordinator that follows the
protocol: agent u sends, of numbers x modulo 2^b,

    y_u = x_u + PRG(b_u) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv)                     (1)

over its neighbours v, b_u a seed of its own and s_uv what X25519 gives it and v. Shares of b_u, and
of the key behind s_uv, go to all neighbours through the coordinator (Shamir 1979; AES-256-GCM).
Those that are left open for each agent one of the two: the seed of one whose y came, the key of one
that was lost. Bell et al. 2020 (eprint 2020/704) have few neighbours on a circle.

PRG is the keystream of ChaCha20, by words of 4 bytes (8 above 32 bits): 2^b divides their modulus.
All keys are of one sum. Without signatures, an active coordinator is not held to anything.
"""

import hmac
import secrets
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Mask
from desim.deployments.doors import NEEDED
from desim.deployments.formats import Declined
from desim.errors import InputError, RunError
from desim.privacy.sums import protocol as sums

KEYS, SHARES, INPUT, UNMASKING = range(len(sums.EXCHANGES))
PRIME = 2**255 - 19  # secrets are below it
SECRET, CIPHER, SHARE = 32, 108, 36  # bytes of a secret or key, of two shares encrypted, of a share
NAME = struct.Struct("<I")  # an agent's number, and 1; 0 fills a message up
LOST = 1 << 31  # added to the name of an agent whose numbers did not come
CHUNK = 1 << 16  # bytes of a mask that are made at once: they stay in the cache
ZEROS = memoryview(bytes(CHUNK))
Words = NDArray[Any]  # whole numbers modulo 2^32 or 2^64


def required() -> None:
    """Load the library of keys, before there are processes; InputError without it."""
    try:
        import cryptography.hazmat.primitives.asymmetric.x25519
        import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401
    except ImportError as missing:
        raise InputError(f"privacy.trust: secure-sum: {NEEDED}") from missing


# Shares of a secret: values of a random polynomial (Shamir 1979).


def shared(secret: int, least: int, places: Iterable[int]) -> list[tuple[int, int]]:
    """Shares (x, value) of a secret below PRIME at places x > 0, `least` of which tell it."""
    coefficients = [secret, *(secrets.randbelow(PRIME) for _ in range(least - 1))]
    shares = []
    for x in places:
        value = 0
        for one in reversed(coefficients):
            value = (value * x + one) % PRIME
        shares.append((x, value))
    return shares


def revealed(some: Sequence[tuple[int, int]]) -> int:
    """The secret of these shares, if they are enough; of places that are all different."""
    secret = 0
    for x, value in some:
        above, below = 1, 1
        for other, _ in some:
            if other != x:
                above, below = above * other % PRIME, below * (other - x) % PRIME
        secret += value * above * pow(below, -1, PRIME)
    return secret % PRIME


# Keys, and what is encrypted by them.


class Pair(NamedTuple):
    """A key pair of X25519: the secret number, the library's key, and the public bytes."""

    secret: int
    private: Any
    public: bytes


def pair(secret: int | None = None) -> Pair:
    """The pair of a secret below PRIME, by default of a new one."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    number = secrets.randbelow(PRIME) if secret is None else secret
    private = X25519PrivateKey.from_private_bytes(number.to_bytes(SECRET, "little"))
    return Pair(number, private, private.public_key().public_bytes_raw())


def agreed(own: Pair, public: bytes, purpose: bytes) -> bytes:
    """The key (32 bytes) that two agents have in common; ValueError for no public key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    both = b"".join(sorted((own.public, public)))
    secret = own.private.exchange(X25519PublicKey.from_public_bytes(public))
    return hmac.digest(secret, purpose + both, "sha256")


def sealed(key: bytes, text: bytes, about: bytes) -> bytes:
    """The text, encrypted; about: what must be the same where it is read."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = secrets.token_bytes(12)
    cipher: bytes = AESGCM(key).encrypt(nonce, text, about)
    return nonce + cipher


def unsealed(key: bytes, cipher: bytes, about: bytes) -> bytes:
    """What `sealed` has encrypted; Declined for anything else."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        text: bytes = AESGCM(key).decrypt(cipher[:12], cipher[12:], about)
    except InvalidTag:
        raise Declined("a share of a secret: found one that its sender did not encrypt") from None
    return text


# Masks, and numbers of b bits as bytes.


def words(bits: int) -> Any:
    """The type of whole numbers whose sums are right modulo 2^bits."""
    return np.dtype("<u4" if bits <= 32 else "<u8")


def mask(total: Words, seed: bytes, sign: int) -> None:
    """Add the mask of a seed (32 bytes) to whole numbers, or take it away, in place."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
    step = CHUNK // total.itemsize
    for low in range(0, len(total), step):
        part = total[low : low + step]
        grown = np.frombuffer(stream.update(ZEROS[: part.nbytes]), total.dtype)
        if sign > 0:
            part += grown
        else:
            part -= grown


def packed(numbers: Words, bits: int) -> bytes:
    """Whole numbers (n,) modulo 2^bits as ceil(n bits / 8) bytes: by byte of each, then by bit."""
    whole = 8 * (bits // 8)
    planes = [(numbers >> numbers.dtype.type(k)).astype(np.uint8) for k in range(0, whole, 8)]
    one = numbers.dtype.type(1)
    rest = [(numbers >> numbers.dtype.type(k)) & one for k in range(whole, bits)]
    if rest:
        planes.append(np.packbits(np.concatenate(rest).astype(np.uint8)))
    return b"".join(plane.tobytes() for plane in planes)


def unpacked(body: bytes, width: int, bits: int) -> Words:
    """The whole numbers (width,) that `packed` has made bytes of; ValueError for too few bytes."""
    whole, kind = bits // 8, words(bits)
    raw = np.frombuffer(body, np.uint8)
    if len(raw) != -(-width * bits // 8):
        raise ValueError(f"found {len(raw)} bytes of {width} numbers of {bits} bits")
    numbers = np.zeros(width, kind)
    for k in range(whole):
        numbers |= raw[k * width : (k + 1) * width].astype(kind) << kind.type(8 * k)
    rest = np.unpackbits(raw[whole * width :], count=(bits - 8 * whole) * width)
    for k, plane in enumerate(rest.reshape(-1, width)):
        numbers |= plane.astype(kind) << kind.type(8 * whole + k)
    return numbers


# Lists in messages: a name and something of one size, again and again, until names are 0.


def listed(rows: Iterable[tuple[int, bytes]], flags: int = 0) -> bytes:
    """Rows (agent, something) as bytes."""
    return b"".join(NAME.pack(agent + 1 | flags) + one for agent, one in rows)


def rows_of(body: bytes, size: int) -> Iterator[tuple[int, bytes]]:
    """The rows (agent, and LOST where so marked; something of `size` bytes) of a list."""
    for place in range(0, len(body) - NAME.size - size + 1, NAME.size + size):
        (name,) = NAME.unpack_from(body, place)
        if name == 0:
            return
        start = place + NAME.size
        yield (name & ~LOST) - 1 | name & LOST, body[start : start + size]


def share_of(raw: bytes) -> tuple[int, int]:
    """A share (x, value) of SHARE bytes."""
    return NAME.unpack_from(raw)[0], int.from_bytes(raw[NAME.size :], "little")


# The two sides.


class Member:
    """Agent `agent`'s part in the sum of a round: each exchange once, in their order.

    bits: of its numbers; what it is asked for otherwise is Declined.
    """

    def __init__(self, agent: int, round_: int, protocol: sums.Protocol, bits: int) -> None:
        self.agent, self.round, self.protocol, self.bits = agent, round_, protocol, bits
        self.seed = 0
        self.cipher_key, self.mask_key = pair(), pair()
        self.least = 0  # shares that make a secret known
        self.publics: dict[int, tuple[bytes, bytes]] = {}  # of its neighbours, and its own
        self.ciphers: dict[int, bytes] = {}
        self.channels: dict[int, bytes] = {}  # keys of what it encrypts for each neighbour
        self.own: tuple[bytes, bytes] = b"", b""  # shares of its own secrets
        self.exchange = -1  # the latest

    def answer(self, exchange: int, letter: bytes, asked: int, numbers: Array) -> bytes:
        """What it answers to the letter of an exchange.

        asked: how many agents the sum was to have; numbers (width,): what it adds, whole, from 0 to
        2^bits - 1.
        """
        if exchange != self.exchange + 1:
            found = f"found exchange {exchange} of a sum after {self.exchange}"
            raise Declined(f"a call of round {self.round}: {found}; allowed: the next, once")
        self.exchange = exchange
        if exchange == KEYS:
            return self.cipher_key.public + self.mask_key.public
        if exchange == SHARES:
            return self._shares(letter, asked)
        return self._masked(letter, numbers) if exchange == INPUT else self._opened(letter)

    def _about(self, sender: int, receiver: int) -> bytes:
        return struct.pack("<QII", self.round, sender, receiver)

    def _enough(self, number: int, what: str) -> None:
        if number < self.least:
            found = f"found {what} of {number} agents"
            raise Declined(f"a call of round {self.round}: {found}; allowed: {self.least} or more")

    def _shares(self, letter: bytes, asked: int) -> bytes:
        """Two shares for each neighbour, encrypted."""
        rows = dict(rows_of(letter, 2 * SECRET))
        self.publics = {j: (raw[:SECRET], raw[SECRET:]) for j, raw in rows.items()}
        self.least = self.protocol.least(asked)
        self._enough(len(rows), "keys")
        if odd := [j for j in rows if not 0 <= j < LOST - 1]:  # a share at place 0 is the secret
            raise Declined(f"a call of round {self.round}: found keys of agent {odd[0]}, of none")
        most = self.protocol.degree(asked) + 1
        own = self.publics.get(self.agent)
        if len(rows) > most or own != (self.cipher_key.public, self.mask_key.public):
            found = (
                f"found keys of {len(rows)} agents, or not its own; allowed: {most}, its own too"
            )
            raise Declined(f"a call of round {self.round}: {found}")
        self.seed, places = secrets.randbelow(PRIME), [j + 1 for j in rows]
        parts = (shared(secret, self.least, places) for secret in (self.seed, self.mask_key.secret))
        answer = []
        for j, *both in zip(rows, *parts, strict=True):
            seed, key = (NAME.pack(x) + value.to_bytes(SECRET, "little") for x, value in both)
            if j == self.agent:
                self.own = seed, key
                continue
            channel = self.channels[j] = agreed(self.cipher_key, self.publics[j][0], b"shares")
            text = NAME.pack(self.agent) + NAME.pack(j) + seed + key
            answer.append((j, sealed(channel, text, self._about(self.agent, j))))
        return listed(answer)

    def _masked(self, letter: bytes, numbers: Array) -> bytes:
        """Its numbers with all masks, equation (1)."""
        self.ciphers = dict(rows_of(letter, CIPHER))
        if unknown := self.ciphers.keys() - self.channels.keys():
            raise Declined(f"a call of round {self.round}: found shares of agent {min(unknown)}")
        self._enough(len(self.ciphers) + 1, "shares")
        total = numbers.astype(words(self.bits))
        mask(total, self.seed.to_bytes(SECRET, "little"), 1)
        for j in self.ciphers:
            seed = agreed(self.mask_key, self.publics[j][1], b"mask")
            mask(total, seed, 1 if j > self.agent else -1)
        return packed(total, self.bits)

    def _opened(self, letter: bytes) -> bytes:
        """A share of the seed of each neighbour whose numbers came, of the key of each other."""
        names = [name for name, _ in rows_of(letter, 0)]
        came = [name for name in names if name < LOST]
        everybody = {*self.ciphers, self.agent}
        if len(names) != len(everybody) or {name & ~LOST for name in names} != everybody:
            found = "found others than those whose masks are in its numbers"
            raise Declined(f"a call of round {self.round}: {found}; allowed: these, each once")
        if self.agent not in came:
            text = "found that its numbers did not come, to which it has answered"
            raise Declined(f"a call of round {self.round}: {text}")
        self._enough(len(came), "numbers")
        return listed((name & ~LOST, self._share(name & ~LOST, name >= LOST)) for name in names)

    def _share(self, j: int, lost: bool) -> bytes:
        if j == self.agent:
            return self.own[lost]
        about = self._about(j, self.agent)
        text = unsealed(self.channels[j], self.ciphers[j], about)[2 * NAME.size :]
        return text[SHARE:] if lost else text[:SHARE]


class Relay:
    """The coordinator's side of a sum of the agents of a circle: what passes, and the unmasking."""

    def __init__(self, circle: sums.Circle, bits: int) -> None:
        self.circle, self.bits = circle, bits
        self.place = {agent: place for place, agent in enumerate(circle.who.tolist())}
        self.around = circle.around()
        self.publics: dict[int, bytes] = {}
        self.ciphers: dict[int, Mapping[int, bytes]] = {}  # by sender, by receiver
        self.shares: dict[int, list[tuple[int, int]]] = {}  # by whose secret it is

    def near(self, agent: int, among: Mask) -> list[int]:
        """The neighbours of an agent, itself included, that are among the agents (n,)."""
        places = self.around[self.place[agent]]
        return [int(one) for one in np.sort(self.circle.who[places[among[places]]])]

    def letter(self, exchange: int, agent: int, left: Mask, sharing: Mask) -> bytes:
        """What goes to an agent; left (n,): who answered the last exchange; sharing: SHARES."""
        if exchange == SHARES:
            return listed((j, self.publics[j]) for j in self.near(agent, left))
        if exchange == INPUT:
            others = (j for j in self.near(agent, left) if j != agent)
            return listed((j, one) for j in others if (one := self.ciphers[j].get(agent)))
        if exchange == UNMASKING:
            came = set(self.near(agent, left))
            near = self.near(agent, sharing)
            return b"".join(listed([(j, b"")], 0 if j in came else LOST) for j in near)
        return b""

    def hear(self, exchange: int, agent: int, body: bytes) -> None:
        """An agent has answered an exchange, but for its numbers."""
        if exchange == KEYS:
            self.publics[agent] = body[: 2 * SECRET]
        elif exchange == SHARES:
            self.ciphers[agent] = dict(rows_of(body, CIPHER))
        elif exchange == UNMASKING:
            for j, raw in rows_of(body, SHARE):
                self.shares.setdefault(j, []).append(share_of(raw))

    def masks(self, width: int, sharing: Mask, came: Mask) -> Words:
        """The sum (width,) of all masks that do not cancel in the numbers of those that came (n,).

        It is below 2^bits, so that floats hold it. RunError where shares are missing or do not fit.
        """
        total, who = np.zeros(width, words(self.bits)), self.circle.who
        for i in who[came].tolist():
            mask(total, self._secret(i).to_bytes(SECRET, "little"), 1)
        for j in who[sharing & ~came].tolist():
            own = pair(self._secret(j))
            if own.public != self.publics[j][SECRET:]:
                raise RunError(f"privacy.secure: shares of a key of agent {j} are not of its key")
            for i in self.near(j, came):
                seed = agreed(own, self.publics[i][SECRET:], b"mask")
                mask(total, seed, 1 if j > i else -1)
        cut: Words = total & total.dtype.type((1 << self.bits) - 1)
        return cut

    def _secret(self, agent: int) -> int:
        some = dict(self.shares.get(agent, ()))
        if len(some) < self.circle.least:
            text = f"found {len(some)} shares of a secret of agent {agent}"
            raise RunError(f"privacy.secure: {text}; allowed: {self.circle.least} or more")
        return revealed([*some.items()][: self.circle.least])


def rehearse(width: int, bits: int) -> None:
    """Play a sum of two agents for nobody: in a run the first one is then no later than others."""
    everybody, protocol = np.ones(2, bool), sums.Protocol(threshold=2.0)
    relay = Relay(sums.Circle(protocol, 0, 1, np.arange(2)), bits)
    members = [Member(i, 1, protocol, bits) for i in range(2)]
    for exchange in (KEYS, SHARES, INPUT, UNMASKING):
        for one in members:
            letter = relay.letter(exchange, one.agent, everybody, everybody)
            relay.hear(exchange, one.agent, one.answer(exchange, letter, 2, np.zeros(width)))
    relay.masks(width, everybody, everybody)
