"""The text of resolved scenarios is the library's, to the byte, whoever writes it."""

import pickle

import pytest
from cases import CASES
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from mutant import mutant

from desim.errors import InputError
from desim.scenario import tree as tree_module
from desim.scenario.load import load, read
from desim.scenario.tree import FOLDER, dumped, library_text, scenarios

WORDS = st.one_of(
    st.sampled_from("true Null yes ring a-b x.y n no 1e5 e5 _ ~ -a a: b:c a#b /a/b.csv".split()),
    st.sampled_from(["two words", "a  b", "", "x ", "w" * 101, "k" * 128]),
    st.text("aB_1.- :+/e", max_size=6),
)
SCALARS = st.one_of(st.integers(), st.floats(), st.booleans(), st.none(), WORDS)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
SPECIMENS = [
    {"a": [[1, 2], []], "b": {"c": {"d": [[{"e": [[-0.0]]}]]}, "f": [[1e-5], {"g": {}}]}},
    {"a": [0.1] * 300}, {"true": "x"}, {"a": "1e5"}, {"a": float("inf")},
    {"a": True}, {"a": "b c"}, {"a": {"b": 1, "c": 2}}, {"a": "b: c"}, {"k" * 128: 1},
    {"a": ["x,y"]},
]  # fmt: skip
TWINS = [
    ('"  " if type(item) is dict else ""', '"  "'), ("indent = \"  \"\n", "indent = \"- \"\n"),
    ("> WIDTH", "> 9 * WIDTH"), ("not in TAKEN", "!= ''"), ("WORD.fullmatch", "WORD.match"),
    ("<= LONGEST", "<= 128"), ('"true" if value', '"True" if value'),
    ("[A-Za-z_/][\\w./+-]*(?", "[\\w/][\\w./+-]*(?"), ('": ".inf", "-', '": "inf", "-'),
    ("kind is int or", "isinstance(value, int) or"), ("[\\w./+-]*(?", "[\\w./+,-]*(?"),
    ('"{" + ", "', '"{" + ","'),
]  # fmt: skip


def unlike(sections, text=tree_module.plain_text, unplain=tree_module.Unplain):
    """The sections that are written otherwise than by the library."""
    for name, value in sections:
        try:
            written = text({name: value})
        except unplain:
            continue
        if written != library_text(pickle.dumps({name: value})):
            yield name, value


def resolved():
    """The sections of all scenarios here that load without data of other people."""
    for source in [*CASES.values(), *scenarios()]:
        try:
            yield from load(source).written().items()
        except InputError:
            continue


def test_scenarios_have_the_text_of_the_library():
    sections = [*resolved()]
    assert not [*unlike(sections)]
    plain = 0
    for name, value in sections:
        try:
            plain += bool(tree_module.plain_text({name: value}))
        except tree_module.Unplain:
            continue
    assert plain > 0.99 * len(sections)


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.yaml")), ids=lambda file: file.stem)
def test_so_have_files_as_they_are_written(file):
    assert not [*unlike(read(file).data.items())]


@settings(max_examples=examples(400), deadline=None)
@given(WORDS, TREES)
def test_any_tree_has_the_text_of_the_library(name, tree):
    assert not [*unlike([(name, tree)])]
    section = {name: tree}
    assert dumped(section).partition("\n")[2] == library_text(pickle.dumps(section))


def sections_of(specimens):
    return [item for one in specimens for item in one.items()]


def test_specimens_have_the_text_of_the_library():
    assert not [*unlike(sections_of(SPECIMENS))]


@pytest.mark.parametrize(("right", "wrong"), TWINS)
def test_wrong_twins_write_otherwise(right, wrong):
    twin = mutant(tree_module, right, wrong)
    assert [*unlike(sections_of(SPECIMENS), twin.plain_text, twin.Unplain)]
