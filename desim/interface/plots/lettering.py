"""Words in figures: how wide they are, cut to what fits, and the fonts that have their letters."""

import textwrap
from collections.abc import Callable, Sequence
from functools import cache
from unicodedata import combining, east_asian_width

from matplotlib import font_manager

LONGEST = 48  # letters of a word, and of a label that is cut
WHOLE = 160  # letters of a label of shorter words, which can be wrapped
CUTS = (0.5, 0.0, 1.0, 0.25, 0.75)  # what share of a cut label stands before the ellipsis
WIDE = (  # families that have the letters of Chinese, Japanese and Korean
    "Noto Sans CJK JP", "Noto Sans CJK SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei",
    "Droid Sans Fallback", "IPAexGothic", "Hiragino Sans", "PingFang SC", "Apple SD Gothic Neo",
    "Yu Gothic", "Microsoft YaHei", "Malgun Gothic",
)  # fmt: skip


def width(text: str) -> int:
    """How many letters wide a text is: those of East Asia are as wide as two."""
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def plain(name: str) -> str:
    """A name as matplotlib takes it for nothing else: neither a formula nor a hidden label."""
    text = name.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def wrapped(text: str, columns: int) -> str:
    """The text in lines at most so many letters wide."""
    whole = text.replace(" %", "\1%")  # a number and its percent sign stay on one line
    spaced = "".join(one + "\0" * (width(one) - 1) for one in whole)  # as long as it is wide
    return textwrap.fill(spaced, max(columns, 1)).replace("\0", "").replace("\1", " ")


def fitted(labels: Sequence[str]) -> list[str]:
    """Labels whose words are at most LONGEST wide, those that were unlike still unlike.

    What is cut is the middle; where that made two alike, another part; else they are numbered.
    """
    for share in CUTS:
        found = [_cut(label, LONGEST, share) for label in labels]
        if len(set(found)) == len(set(labels)):
            return found
    numbers = {label: f" #{number}" for number, label in enumerate(dict.fromkeys(labels), 1)}
    return [
        label if _fits(label) else _cut(label, LONGEST - len(end), 0.5) + end
        for label, end in ((label, numbers[label]) for label in labels)
    ]


def _cut(label: str, most: int, share: float) -> str:
    if _fits(label):
        return label
    before = int(share * (most - 1))
    head = _taken(label, lambda text: width(text) <= before)
    rest = most - 1 - width(head)
    tail = _taken(label[::-1], lambda text: width(text) <= rest)[::-1]
    return f"{head}…{tail}"


def _fits(label: str) -> bool:
    return width(label) <= WHOLE and max(map(width, label.split()), default=0) <= LONGEST


def _taken(text: str, fits: Callable[[str], bool]) -> str:
    """The longest beginning that fits."""
    end = 0
    while end < len(text) and fits(text[: end + 1]):
        end += 1
    return text[:end]


@cache
def families() -> list[str]:
    """The font families of figures: the usual one, then those of WIDE that are installed."""
    return ["sans-serif", *(name for name in WIDE if name in font_manager.get_font_names())]
