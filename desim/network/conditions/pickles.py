"""Pickles of numbers, read by a machine of desim's own: no name in them is looked up, nothing runs.

A pickle is a program of instructions for a machine with a stack, and Python's own machine calls
whatever the program names. This one knows those instructions (as the module pickletools documents
them, protocols 0 to 5) that make dictionaries, lists, tuples, numbers, texts and bytes; at any
other it stops and says which. Memory stays within some multiple of a file's bounded size.
"""

import pickletools
from collections.abc import Callable
from pathlib import Path
from struct import Struct, unpack_from
from struct import error as StructError
from typing import Any

from desim.errors import InputError, shortened, show
from desim.readers import OPENED, reading

MAX_BYTES = 1 << 27  # of a file, unpacked: a file in a repository has at most 100 MB
MAX_ENTRIES = 1 << 22  # containers, and things remembered
MAX_DEPTH = 64  # containers that are open at once
MAX_INTEGER_BYTES = 8
KEYS = {int, float, str, bytes}  # to hash tuples of tuples may take for ever, or end the process
STOP = ord(".")
SHORT, INTEGER, DOUBLE = (Struct(form).unpack_from for form in ("<H", "<i", ">d"))
ALLOWED = "a pickle of dictionaries, lists, tuples, numbers, texts and bytes alone"


class _Foreign(Exception):
    """An instruction that this machine does not know, in words."""


class _Machine:
    """What a pickle has made so far."""

    def __init__(self, program: bytes) -> None:
        self.program, self.at = program, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []  # where in the stack a container's contents begin
        self.memo: dict[int, Any] = {}
        self.containers = 0

    def take(self, size: int) -> bytes:
        """The next so many bytes of the program."""
        self.at += size
        if size < 0 or self.at > len(self.program):
            raise ValueError("it ends in the middle")
        return self.program[self.at - size : self.at]

    def number(self, form: str, size: int) -> Any:
        """The number that so many bytes of the program are, as `struct` says it."""
        self.at += size
        if self.at > len(self.program):
            raise ValueError("it ends in the middle")
        return unpack_from(form, self.program, self.at - size)[0]

    def line(self) -> bytes:
        """The rest of a line of the program."""
        end = self.program.find(b"\n", self.at)
        if end < 0:
            raise ValueError("it ends in the middle")
        return self.take(end + 1 - self.at)[:-1]

    def push(self, value: Any) -> None:
        """Put something on top."""
        self.stack.append(value)

    def contain(self, container: Any) -> None:
        """Put a container on top."""
        self.containers += 1
        if self.containers > MAX_ENTRIES:
            raise ValueError(f"more than {MAX_ENTRIES} containers")
        self.stack.append(container)

    def mark(self) -> None:
        """Contents begin here."""
        if len(self.marks) >= MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} containers inside each other")
        self.marks.append(len(self.stack))

    def contents(self) -> list[Any]:
        """What is on top since the last mark, taken off."""
        first = self.marks.pop()
        found = self.stack[first:]
        del self.stack[first:]
        return found

    def topmost(self, count: int) -> list[Any]:
        """The so many things on top, taken off."""
        if len(self.stack) < count + (self.marks[-1] if self.marks else 0):
            raise ValueError("it takes more than there is")
        found = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return found

    def append(self, found: list[Any]) -> None:
        """Add contents to the list on top."""
        top = self.stack[-1]
        if type(top) is not list:
            raise ValueError("it appends to what is no list")
        top.extend(found)

    def enter(self, found: list[Any]) -> None:
        """Add keys and values in turn to the dictionary on top."""
        top = self.stack[-1]
        if type(top) is not dict or len(found) % 2:
            raise ValueError("it has keys or values that are no dictionary's")
        if foreign := {*map(type, found[::2])} - KEYS:
            raise ValueError(f"it has a {foreign.pop().__name__} as a key")
        top.update(zip(found[::2], found[1::2], strict=True))

    def dictionary(self) -> None:
        """Contents become a dictionary."""
        found = self.contents()
        self.contain({})
        self.enter(found)

    def remember(self, place: int) -> None:
        """Note what is on top under a number."""
        if len(self.memo) >= MAX_ENTRIES:
            raise ValueError(f"more than {MAX_ENTRIES} things to remember")
        self.memo[place] = self.stack[-1]

    def integer(self, size: int) -> int:
        """A whole number of so many bytes."""
        if not 0 <= size <= MAX_INTEGER_BYTES:
            raise ValueError(f"a whole number of {size} bytes")
        return int.from_bytes(self.take(size), "little", signed=True)

    def decimal(self) -> int:
        """A whole number in a line; 00 and 01 stand for False and True."""
        text = self.line().removesuffix(b"L")
        if text in (b"00", b"01"):
            raise _Foreign("True or False")
        if len(text) > 20:
            raise ValueError("a whole number of more than 20 digits")
        return int(text)


def _text(size_form: str, size_bytes: int) -> Callable[[_Machine], None]:
    def act(m: _Machine) -> None:
        m.push(m.take(m.number(size_form, size_bytes)).decode("utf-8", "surrogatepass"))

    return act


def _bytes(size_form: str, size_bytes: int, coding: str = "") -> Callable[[_Machine], None]:
    def act(m: _Machine) -> None:
        found = m.take(m.number(size_form, size_bytes))
        m.push(found.decode(coding) if coding else found)

    return act


ACTS: dict[int, Callable[[_Machine], Any]] = {
    ord(code): act
    for code, act in {
        "\x80": lambda m: m.take(1),  # the protocol
        "\x95": lambda m: m.take(8),  # how long a frame is
        "0": lambda m: m.topmost(1),
        "1": _Machine.contents,
        "\x8a": lambda m: m.push(m.integer(m.number("<B", 1))),
        "\x8b": lambda m: m.push(m.integer(m.number("<i", 4))),
        "I": lambda m: m.push(m.decimal()),
        "L": lambda m: m.push(m.decimal()),
        "F": lambda m: m.push(float(m.line())),
        "X": _text("<I", 4),
        "\x8c": _text("<B", 1),
        "\x8d": _text("<Q", 8),
        "V": lambda m: m.push(m.line().decode("raw-unicode-escape")),
        "U": _bytes("<B", 1, "latin-1"),  # texts of Python 2
        "T": _bytes("<i", 4, "latin-1"),
        "C": _bytes("<B", 1),
        "B": _bytes("<I", 4),
        "\x8e": _bytes("<Q", 8),
        "}": lambda m: m.contain({}),
        "d": _Machine.dictionary,
        "s": lambda m: m.enter(m.topmost(2)),
        "u": lambda m: m.enter(m.contents()),
        "]": lambda m: m.contain([]),
        "l": lambda m: m.contain(m.contents()),
        "a": lambda m: m.append(m.topmost(1)),
        "e": lambda m: m.append(m.contents()),
        ")": lambda m: m.contain(()),
        "t": lambda m: m.contain(tuple(m.contents())),
        "\x85": lambda m: m.contain(tuple(m.topmost(1))),
        "\x86": lambda m: m.contain(tuple(m.topmost(2))),
        "\x87": lambda m: m.contain(tuple(m.topmost(3))),
        "p": lambda m: m.remember(int(m.line())),
        "r": lambda m: m.remember(m.number("<I", 4)),
        "g": lambda m: m.push(m.memo[int(m.line())]),
        "j": lambda m: m.push(m.memo[m.number("<I", 4)]),
    }.items()
}


def _foreign(m: _Machine, code: int) -> str:
    """What an instruction that is none of ours stands for."""
    if code in b"ci":  # its lines name a module, and what is in it
        names = [m.line(), m.line()]
        return f"the name {b'.'.join(names).decode('ascii', 'replace')} of Python's"
    if code == 0x93 and len(m.stack) > 1 and all(isinstance(x, str) for x in m.stack[-2:]):
        return f"the name {'.'.join(m.stack[-2:])} of Python's"
    known = next((one.name for one in pickletools.opcodes if one.code == chr(code)), "")
    if not known:
        return f"the byte {code:#04x}, which is no instruction"
    words = {"NONE": "None", "NEWTRUE": "True", "NEWFALSE": "False"}
    return words.get(known, f"the instruction {known}")


def value_of(program: bytes) -> Any:
    """What a pickle makes; ValueError, or whatever else a torn one leads to.

    What files of numbers mostly consist of stands in the loop: a machine of calls alone takes five
    times as long.
    """
    m = _Machine(program)
    stack, memo, push, at = m.stack, m.memo, m.stack.append, 0
    while (code := program[at]) != STOP:
        at += 1
        if code == 0x68:  # BINGET
            push(memo[program[at]])
            at += 1
        elif code == 0x47:  # BINFLOAT
            push(DOUBLE(program, at)[0])
            at += 8
        elif code == 0x4D:  # BININT2
            push(SHORT(program, at)[0])
            at += 2
        elif code == 0x4A:  # BININT
            push(INTEGER(program, at)[0])
            at += 4
        elif code == 0x4B:  # BININT1
            push(program[at])
            at += 1
        elif code == 0x94:  # MEMOIZE
            m.remember(len(memo))
        elif code == 0x71:  # BINPUT
            m.remember(program[at])
            at += 1
        elif code == 0x28:  # MARK
            m.mark()
        elif (act := ACTS.get(code)) is not None:
            m.at = at
            act(m)
            at = m.at
        else:
            m.at = at
            raise _Foreign(_foreign(m, code))
    if len(stack) != 1 or m.marks:
        raise ValueError(f"{len(stack)} things are left where one should be")
    return stack[0]


def unpickled(path: Path, where: str) -> Any:
    """What the pickle in a file makes, perhaps compressed as named, without running any of it.

    InputError at the key `where` for whatever else than dictionaries, lists, tuples, numbers, texts
    and bytes is in it, for what is torn, and above 128 MiB.
    """
    opened: Any = OPENED.get(path.suffix, open)
    with reading(path, where, "a pickle of numbers", ALLOWED), opened(path, "rb") as stream:
        program = stream.read(MAX_BYTES + 1)
        if len(program) > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
        try:
            return value_of(program)
        except (IndexError, StructError):
            raise ValueError("it ends in the middle, or takes more than there is") from None
        except _Foreign as error:
            text = f"found {shortened(str(error))} in {path.name}, of which nothing was run"
            raise InputError(f"{where}: {text}; allowed: {ALLOWED}") from None


def described(value: object) -> str:
    """A value of a pickle in a few letters: it may hold itself, or be large."""
    if isinstance(value, dict | list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return show(value)
