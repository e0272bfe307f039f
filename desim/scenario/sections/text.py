"""The section `problem.data` of text, as rows of tokens."""

from typing import Literal

from pydantic import model_validator

from desim.fields import Count, File, Folder, Strict
from desim.scenario.sections.examples import one_of
from desim.scenario.sections.tables import Test


class TextFiles(Strict):
    """Text in windows of so many tokens, whose labels are the tokens that follow; for models."""

    examples = {
        "file": "novel.txt", "folder": "authors", "length": 64, "every": 32,
        "vocabulary": "words.txt", "test": "20 %",
    }  # fmt: skip

    source: Literal["text"]
    file: File | None = None
    """a text file in UTF-8, relative to the scenario's folder; with folder left out"""
    folder: Folder | None = None
    """a folder of .txt files; the column `file` holds their names, as in partition: {by: file}"""
    length: Count
    """tokens of a row"""
    every: Count | None = None
    """tokens from the beginning of a row to that of the next; default: length"""
    tokens: Literal["bytes", "characters", "words"] = "bytes"
    """bytes: 0 to 255, the same for every text; characters, words: numbered 1, 2, ... by the
    vocabulary, 0 for what it lacks"""
    vocabulary: File | None = None
    """a public text file with the words, or the characters; default: those of all the rows"""
    test: Test = 0.0
    """rows held out for testing: a share of all, {rows: n}, or {column: file, value: ...}"""
    train: Count | None = None
    """how many of the rows that are not for testing to train on, drawn uniformly; default: all"""

    @property
    def tested(self) -> bool:
        """Whether there are test rows."""
        return bool(self.test)

    @model_validator(mode="after")
    def _consistent(self) -> "TextFiles":
        one_of(self, "file", "folder")
        if self.vocabulary is not None and self.tokens == "bytes":
            raise ValueError("found vocabulary with tokens bytes, which need none; allowed with "
                             "tokens: characters, words")  # fmt: skip
        return self
