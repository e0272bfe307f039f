"""Text in windows of so many tokens; the label of each token is the next one."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError
from desim.problem.data.gathered import Gathered
from desim.problem.models.dataset import Examples
from desim.readers import reading, text_of

ALLOWED = "text in UTF-8"
WORDS = re.compile(r"\w+|[^\w\s]")
BYTES = 256


def text_windows(section: Any) -> tuple[Examples, str]:
    """Windows (rows, length) of tokens and of the tokens that follow, and the key of the files.

    section: file or folder (of .txt, with column `file`), tokens, length, every, vocabulary. Bytes
    are tokens 0 to 255, whatever the text is; other tokens are numbered by the vocabulary, and 0 is
    what it lacks.
    """
    where = "problem.data.file" if section.file is not None else "problem.data.folder"
    files = _files(section, where)
    parts, classes = _tokens(files, section, where)
    every, starts, whose, low = section.every or section.length, [], [], 0
    for file, part in zip(files, parts, strict=True):
        found = np.arange(low, low + len(part) - section.length, every)
        if not len(found):
            text = f"{file.name} has {len(part)} {section.tokens}"
            raise InputError(f"{where}: {text}; allowed: more than length, {section.length}")
        starts.append(found)
        whose += [file.stem] * len(found)
        low += len(part)
    stream = parts[0] if len(parts) == 1 else np.concatenate(parts)
    windows = np.lib.stride_tricks.sliding_window_view(stream, section.length)
    order = np.concatenate(starts)
    inputs, labels = (Gathered(one, order, np.int64) for one in (windows[:-1], windows[1:]))
    return Examples(inputs, labels, {"file": np.array(whose)}, classes=classes), where


def _files(section: Any, where: str) -> list[Path]:
    if section.file is not None:
        return [section.file]
    if not section.folder.is_dir():
        raise InputError(f"{where}: {section.folder} is no directory; allowed: a folder of .txt")
    files = sorted(section.folder.glob("*.txt"))
    if not files:
        raise InputError(f"{where}: found no .txt in {section.folder}; allowed: one or more")
    return files


def _tokens(files: list[Path], section: Any, where: str) -> tuple[list[NDArray[Any]], int]:
    """The tokens (n,) of each file as numbers, and how many different ones there are."""
    if section.tokens == "bytes":
        return [_bytes(file, where) for file in files], BYTES
    parts = [_split(_text(file, where), section.tokens) for file in files]
    if section.vocabulary is None:
        known = sorted(set().union(*parts))
    else:
        listed = _text(section.vocabulary, "problem.data.vocabulary")
        known = listed.split() if section.tokens == "words" else sorted(set(listed))
    number = {token: place for place, token in enumerate(dict.fromkeys(known), 1)}
    kind = np.uint16 if len(number) < 1 << 16 else np.uint32
    return [np.array([number.get(one, 0) for one in part], kind) for part in parts], len(number) + 1


def _split(text: str, tokens: str) -> list[str]:
    return WORDS.findall(text) if tokens == "words" else list(text)


def _bytes(file: Path, where: str) -> NDArray[np.uint8]:
    """The bytes of a file, mapped into memory."""
    with reading(file, where, "text", ALLOWED):
        if not file.stat().st_size:
            raise InputError(f"{where}: {file.name} is empty; allowed: {ALLOWED}")
        return np.memmap(file, np.uint8, "r")


def _text(file: Path, where: str) -> str:
    with reading(file, where, "text", ALLOWED):
        return text_of(file)
