"""The text of resolved scenarios is the library's, to the byte, whoever writes it."""

import pickle

import pytest
from cases import CASES
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from mutant import mutant

from desim.errors import InputError
from desim.scenario import load as load_module
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


# Long runs of pairs, as edges are, are read apart.


def pairs(number, form="- [{}, {}]\n"):
    return "".join(form.format(k, k + 1) for k in range(number))


FLOW = "[" + pairs(120, "[{}, {}],\n  ").rstrip(", \n") + "]"
LONG = {  # with how much of it is a run
    "block": ("a:\n  edges:\n" + pairs(150, "  - [{}, {}]\n") + "  b: 1\nc: x\n", 150),
    "of the mapping's indentation": ("edges:\n" + pairs(150) + "b: [1, 2]\n", 150),
    "with others around": ("e:\n- [7, 1]  # mine\n" + pairs(150) + "- x\n- [01, 2]\nb: 1\n", 150),
    "two": ("e:\n" + pairs(120) + "f:\n  " + pairs(130, "  - [{}, {}]\n").lstrip() + "g: 1\n", 250),
    "flow": (f"a: {{edges: {FLOW}, b: 2}}\nc: 3\n", 120),
    "lists of lists": (f"e: [{FLOW}, [[1, 2]], {FLOW}]\n", 240),
    "json": ('{"e": [' + pairs(150, "[{},{}],").rstrip(",") + '], "b": {"c": 1}}', 150),
    "a text": ("a: |\n  x\n" + pairs(150, "  - [{}, {}]\n") + "b: 1\n", 150),
    "a quoted text": (f'a: "{FLOW}"\nb: 1\n', 120),
    "a comment": ("a: 1  # " + pairs(150, "[{}, {}], ").rstrip(", ") + "\nb: 2\n", 0),
    "a comment's list": ("a: 1  # [" + pairs(150, "[{}, {}], ").rstrip(", ") + "]\nb: 2\n", 150),
    "wrong below": ("e:\n" + pairs(150) + "    [1, 2]\nb: 1\n", 150),
    "wrong after": ("e:\n" + pairs(150) + "b: 1\nb: 2\n", 150),
    "its mark": (f"b: [{load_module.MARK}0]\ne:\n" + pairs(150), 0),
    "deeper": ("e:\n" + pairs(150) + "  - [1, 2]\nb: 1\n", 150),
    "a key": ("? " + FLOW + "\n: 1\n", 120),
    "short": ("e:\n" + pairs(99) + "b: 1\n", 0),
    "digits of other scripts": ("e:\n" + pairs(150, "- [{}, \u0661{}]\n") + "b: 1\n", 0),
    "spaces that are none": (f"e: {FLOW.replace(' [', chr(0xA0) + '[')}\n", 0),
    "a control character": (f"e: {FLOW.replace(' [', chr(12) + '[')}\n", 0),
    "no lines to YAML": (f"e: {FLOW.replace(chr(10), chr(0x2028))}\nb: 1\nb: 2\n", 0),
    "old lines": (f"e: {FLOW.replace(chr(10), chr(13))}\nb: 1\nb: 2\n", 0),
    "tabs": (f"e: {FLOW.replace(chr(10), chr(9))}\nb: 1\nb: 2\n", 0),
    "an alias": (f"e: &e {FLOW}\nb: *e\nf: [*e, [*e]]\n", 120),
    "an alias of a block": ("e: &e\n" + pairs(150) + "b: *e\n", 150),
    "an alias inside": (f"e: &e [{FLOW}, *e]\n", 120),
    "its mark, escaped": (f'b: ["pairs-read-apar\\x74-0"]\ne: {FLOW}\n', 120),
    "large numbers": ("e:\n" + pairs(150, "- [{}00000000000000000000, {}]\n") + "b: 1\n", 0),
}


def found(text, module=load_module):
    """What is read of a text, with places and problems; or what is said of it."""
    module._parsed.cache_clear()
    try:
        tree = module.parse(text, "file")
    except InputError as error:
        return str(error)
    return tree.data, tree.marks, tree.problems


@pytest.mark.parametrize("name", LONG)
def test_what_is_read_apart_is_what_the_library_reads(name, monkeypatch):
    text, number = LONG[name]
    assert sum(map(len, load_module._apart(text)[1].values())) == number
    with monkeypatch.context() as patch:
        patch.setattr(load_module, "_apart", lambda text: (text, {}))
        expected = found(text)
    assert found(text) == expected


def test_too_many_pairs_are_too_much_text_however_they_are_read(monkeypatch):
    text, _ = LONG["flow"]
    sizes = [3 * 120, 3 * 120 + 9]
    for size, enough in zip(sizes, (False, True), strict=True):
        monkeypatch.setattr(load_module, "MAX_NODES", size)
        assert ("too much text" not in found(text)) == enough


@pytest.mark.parametrize(
    ("right", "wrong", "name"),
    [
        ('"\\n" * found[0].count("\\n")', '"\\n" * bool(found["dash"])', "block"),
        ("if reader.met == runs.keys() and", "if", "a text"),
        (r"[[0-9]{1,18}, ?[0-9]", r"[\d{1,18}, ?\d", "digits of other scripts"),
        (r"(?:,[ \n]*", r"(?:,\s*", "spaces that are none"),
        (r"(?:,[ \n]*", r"(?:,\s*", "a control character"),
        ("item.style is None and ", "", "its mark, escaped"),
        ("if MARK in text", "if not text", "its mark"),
        ("found += map(list, self.runs[item.value])", "found += [[1, 2]]", "block"),
        (r"(?:(?P=dash){PAIR}\n)", r"(?: *- {PAIR}\n)", "deeper"),
        ("numbers[::2], numbers[1::2]", "numbers[1::2], numbers[::2]", "json"),
    ],
)
def test_careless_readers_are_noticed(right, wrong, name):
    text, _ = LONG[name]
    assert found(text, mutant(load_module, right, wrong)) != found(text)
