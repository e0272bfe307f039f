"""Whether a program does the same in all rounds to come: then it need not run beside them.

It does if all code that it may run is known to write to nothing but its locals and `us`, and these
are at the beginning of a round what they were at that of the round before. Code of a user's is read
for what the tables below name; with anything else in it a program goes on running beside its
rounds. Code of desim's own is known.
"""

import ast
import builtins
import dis
import gc
import linecache
import math
import sys
from abc import ABCMeta
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from types import BuiltinMethodType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from desim.unplayed import of_unplayed


def _table(text: str) -> dict[str, int]:
    """Names, by how many positions they may have at most: what comes after may be written to."""
    return {name: most for most, names in enumerate(text.split(";")) for name in names.split()}


SYNTAX = (  # what code may say
    ast.Expr, ast.Return, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.If, ast.For, ast.Pass,
    ast.Break, ast.Continue, ast.Assert, ast.Raise, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare,
    ast.IfExp, ast.Call, ast.Attribute, ast.Subscript, ast.Slice, ast.Name, ast.Constant, ast.Tuple,
    ast.List, ast.Dict, ast.ListComp, ast.Lambda, ast.JoinedStr, ast.FormattedValue, ast.Yield,
    ast.YieldFrom, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context, ast.keyword,
    ast.comprehension, ast.arguments, ast.arg,
)  # fmt: skip
BUILTINS = _table(
    "super; abs bool float int len list repr str tuple ValueError TypeError RuntimeError all any;"
    "divmod isinstance round sum; range;;;;;; enumerate max min zip partial"
)
NUMPY = _table(
    "inf nan pi newaxis; int64 float64 float32 abs absolute ceil exp floor isnan isfinite log log2 "
    "log10 negative sign sqrt square tanh flatnonzero; add all any argmax argmin concatenate "
    "cumsum divide dot hsplit hstack matmul max maximum mean min minimum mod multiply nextafter "
    "outer power prod repeat subtract sum true_divide vstack; arange array asarray broadcast_to "
    "clip full full_like linspace ones ones_like where zeros zeros_like"
)
METHODS = _table(  # of arrays, numbers and dicts, of `us`, and of desim's objects
    "arrived items keys models neighbours rounds tobytes values; agreed all any astype at capacity "
    "coded copy dot gather heard_by known max mean min public report round tolist; clip exchange "
    "get initial link_weights of scale scaled std sum var; release send; reshape; above "
    "perturbation;;;; compute"
)
KEYWORDS = frozenset("axis dtype keepdims start key default strict".split())  # of these
KNOWN = _table(  # functions and classes of desim's: before these places nothing is written to
    ";;; gradient;;; batch_gradient;;; EdgeDuals InputError Mechanism RunError Terms View clamp "
    "estimates fitting minimise mixing_matrix overheads_of plain prox quantize random_matching "
    "random_neighbours rounded seed_word simple sparsify speeds_of terms"
)
MUTABLE = (np.ndarray, list, dict, set)
HANDLES = {name for kind in (*MUTABLE, memoryview) for name in dir(kind)} - METHODS.keys()
HANDLES -= {*"T count data flat imag index ndim real shape size".split()}  # nor of which kind it is
QUIET = "__init__ __init_subclass__ __dict__ __weakref__".split()  # what no operator calls
NUMBERS = (bool, int, float, complex, str, bytes, type(None), type(...), range)
OPEN = (list, dict, slice, partial, MethodType, BuiltinMethodType, FunctionType)
FIXED = (type, ModuleType, np.dtype, np.ufunc)
CHANGING = ("EdgeDuals", "EdgePairs", "PairwiseAverages", "Terms")  # of desim: looked into
TYPES = (*(getattr(builtins, name, bool) for name in BUILTINS), np.int64, np.float64, np.float32)
KINDS = {*"dtype flags format itemsize nbytes strides __array_interface__".split()}
MANY = 2000  # objects in which a program is looked for what it may call
MOST_BYTES = 1 << 25  # of an array that is compared


class Unknown(Exception):
    """Something that may do, or hold, anything."""


def unknown(program: Any) -> str:
    """Why nobody knows what a program, or a job, writes to; empty where that is known."""
    try:
        Reading(program)
    except (Unknown, RecursionError, SyntaxError) as why:
        return str(why) or "its code"
    return ""


def ours(one: Any) -> bool:
    """Whether desim made it."""
    return maker(one) == "desim"


def maker(one: Any) -> str:
    """The package that a function, a class, a module, or the class of anything else, is of."""
    if type(one) is FunctionType:
        name = one.__globals__.get("__name__")
    elif isinstance(one, ModuleType):
        name = one.__name__
    else:
        name = (one if isinstance(one, type) else type(one)).__module__
    return str(name).partition(".")[0]


UNPLAYED = of_unplayed(0)(lambda _: _).__code__


class Reading:
    """All code that a program may run, and all values it may read, as the names in it lead there.

    holders: objects of a user's, whose attributes are asked for by names.
    """

    def __init__(self, program: Any) -> None:
        self.met, self.holders = dict[int, Any](), list[Any]()
        self.names, self.called = set[str](), set[str]()  # of attributes; of methods
        self.root = getattr(program, "__func__", None)
        if self.root is not None:
            self._holder(program.__self__)
            self.function(self.root)
        else:
            self.value(program)
        done = set[tuple[int, str]]()
        while todo := {(n, name) for n in range(len(self.holders)) for name in self.names} - done:
            done |= todo
            for number, name in todo:
                self._attribute(self.holders[number], name)
        known = {name for one in self.holders for kind in type(one).__mro__ for name in vars(kind)}
        if strange := self.called - METHODS.keys() - known:
            raise Unknown(f"x.{min(strange)}()")

    def value(self, one: Any) -> None:
        """Something that code may read."""
        kind = type(one)
        if kind is FunctionType:
            self.function(one, KNOWN)
        elif kind in NUMBERS or id(one) in self.met or any(one is known for known in TYPES):
            return
        elif kind in (list, tuple, dict, partial, set, frozenset, slice):
            self.met[id(one)] = one
            for part in _parts(one):
                self.value(part)
        elif kind in (MethodType, staticmethod, classmethod, property):
            found = one.fget if kind is property else one.__func__
            if type(found) is not FunctionType:
                raise Unknown(f"a {kind.__name__}")
            self.function(found)
            self.value(getattr(one, "__self__", None))
        elif isinstance(one, type):
            if not ours(one) or one.__name__ not in KNOWN:
                raise Unknown(one.__name__)
        elif kind is np.ndarray:
            if one.dtype.hasobject:
                raise Unknown("an array of objects")
        elif not (ours(kind) or (maker(kind) == "numpy" and issubclass(kind, np.generic))):
            self._holder(one)

    def _holder(self, one: Any) -> None:
        """An object of classes without operators, all of which Python sees."""
        self.met[id(one)] = one
        self.holders.append(one)
        for kind in type(one).__mro__:
            theirs = maker(kind) in ("pydantic", "abc", "typing") and kind is not type(one)
            if theirs or ours(kind) or kind is object:
                continue
            for name, x in vars(kind).items():
                does = callable(x) or hasattr(type(x), "__get__")
                if name[:2] == "__" and name not in QUIET and does and maker(x) != "pydantic":
                    raise Unknown(f"a {kind.__name__}, which has {name}")
            if not seen_through(kind):
                raise Unknown(f"a {kind.__name__}")

    def _attribute(self, one: Any, name: str) -> None:
        if name == getattr(self.root, "__name__", ""):  # its page says that nobody calls it
            return
        for kind in type(one).__mro__:
            found = vars(kind).get(name)
            if type(found) is FunctionType:
                self.function(found)
            elif maker(kind) not in ("desim", "pydantic"):
                self.value(found)
        for place in ("__dict__", "__pydantic_private__", "__pydantic_extra__"):
            self.value((getattr(one, place, None) or {}).get(name))

    def function(self, one: FunctionType, known: Any = None) -> None:
        """Its code, and what the names in that mean; known: names of desim's that are allowed."""
        if vars(one) and (one.__code__ is UNPLAYED or not ours(one)):
            self.value({name: x for name, x in vars(one).items() if name != "__wrapped__"})
        if one.__code__ is UNPLAYED and one.__closure__:
            one = one.__closure__[one.__code__.co_freevars.index("function")].cell_contents
        if id(one) in self.met:
            return
        self.met[id(one)] = one
        if not ours(one):
            Page(self, one).read()
            self.value((one.__defaults__, one.__kwdefaults__))
        elif known is None or one.__name__ in known:
            self.names |= _names(one.__code__)
        else:
            raise Unknown(one.__name__)


def seen_through(kind: type) -> bool:
    """Whether Python sees all that an object of this class, which is not desim's, holds."""
    if maker(type(kind)) == "pydantic":
        return True
    small = kind.__basicsize__ <= object.__basicsize__ + 16 and "__slots__" not in vars(kind)
    own = kind.__dictoffset__ and maker(kind) not in sys.stdlib_module_names
    return bool(small and own and type(kind) in (type, ABCMeta))


def _single(one: Any) -> bool:
    """Whether there is one object alone that is like it."""
    return one is None or one is True or one is False


@cache
def _codes(code: CodeType) -> list[CodeType]:
    """It, and all that is inside it."""
    found = [code]
    for one in found:
        found += [inner for inner in one.co_consts if type(inner) is CodeType]
    return found


@cache
def _names(code: CodeType) -> set[str]:
    return {*code.co_names}.union(*(one.co_names for one in _codes(code)))


def _outside(code: CodeType) -> set[str]:
    """Names that it, and what is inside it, looks for outside any function."""
    steps = [x for one in _codes(code) for x in dis.get_instructions(one)]
    return {x.argval for x in steps if x.opname.startswith("LOAD_GLOBAL")}


@cache
def _identities(code: CodeType) -> bool:
    """Whether it asks which object something is, but for None, True and False."""
    steps = [x for one in _codes(code) for x in dis.get_instructions(one)]
    found = [one for one, x in pairwise(steps) if x.opname == "IS_OP"]
    return any(x.opname != "LOAD_CONST" or not _single(x.argval) for x in found)


class Page:
    """The source of a function of a user's; _NODE(node) says whether a node of it is known."""

    def __init__(self, reading: Reading, function: FunctionType) -> None:
        self.reading, self.function, self.code = reading, function, function.__code__
        self.names, place = _outside(self.code), (self.code.co_firstlineno, self.code.co_name)
        inner = set[str]().union(*(one.co_varnames for one in _codes(self.code)))
        body, code = _sources(self.code.co_filename).get(place, ((), None))
        if clash := inner & {*self.names, *self.code.co_freevars}:
            raise Unknown(f"{min(clash)} of two meanings")
        if code != self.code:  # nobody knows whether it is what was written
            raise Unknown(f"the source of {self.code.co_name}")
        self.nodes = [node for part in body for node in ast.walk(part)]
        self.loops = {id(one.iter) for one in body if isinstance(one, ast.For)}
        self.calls = {id(one.func) for one in self.nodes if isinstance(one, ast.Call)}
        self.roots = {id(one.value) for one in self.nodes if isinstance(one, ast.Attribute)}

    def read(self) -> None:
        """Unknown where it says what nobody knows."""
        for node in self.nodes:
            check = getattr(self, f"_{type(node).__name__.lower()}", None)
            if not isinstance(node, SYNTAX) or (check and not check(node)):
                raise Unknown(ast.unparse(node).partition("\n")[0])

    def _means(self, node: ast.expr) -> Any:
        """What a name means that is no local one: then itself."""
        name = getattr(node, "id", "")
        if name in self.code.co_freevars:
            cell = (self.function.__closure__ or ())[self.code.co_freevars.index(name)]
            return None if cell == CellType() else cell.cell_contents
        if name not in self.names:
            return node
        return self.function.__globals__.get(name, getattr(builtins, name, node))

    def _name(self, node: ast.Name) -> bool:
        found = self._means(node)
        if found is node or isinstance(node.ctx, ast.Store):
            return found is node and (node.id != "us" or isinstance(node.ctx, ast.Load))
        if type(found) is ModuleType:
            return found in (np, math) and id(node) in self.roots
        if found is partial:
            return id(node) in self.calls
        self.reading.value(found)
        return id(node) in self.calls or not (type(found) is FunctionType and ours(found))

    def _attribute(self, node: ast.Attribute) -> bool:
        called, module = id(node) in self.calls, self._means(node.value)
        if isinstance(node.ctx, ast.Store):
            mine = self.function is self.reading.root and self.code.co_varnames[1:2] == ("us",)
            return mine and getattr(node.value, "id", "") == "us"  # which nothing else can be
        if type(module) is ModuleType:
            found = getattr(module, node.attr, None)
            constant = not callable(found) or isinstance(found, type)
            known = module is math or (node.attr in NUMPY and maker(found) in ("numpy", "builtins"))
            return known and (called or constant)
        self.reading.names.add(node.attr)
        if called:
            self.reading.called.add(node.attr)
        if node.attr == getattr(self.reading.root, "__name__", ""):
            return ast.unparse(node.value) in ("self.problem", "self.graph")
        return node.attr not in HANDLES and node.attr[:2] != "__"

    def _call(self, node: ast.Call) -> bool:
        name, words = getattr(node.func, "attr", ""), {one.arg for one in node.keywords}
        table = METHODS
        if isinstance(node.func, ast.Name) and (found := self._means(node.func)) is not node.func:
            name = getattr(found, "__name__", "")
            table = KNOWN if isinstance(found, FunctionType) else BUILTINS
        elif not isinstance(node.func, ast.Attribute):  # it may be a method of an array
            return len(node.args) < 2 and not words
        elif self._means(node.func.value) is np:
            table = NUMPY
        if name == "rounds" and id(node) not in self.loops:
            return False  # nobody can look into an iterator that holds it
        if table is BUILTINS and name == "partial" and not self._named(node.args):
            return False
        many = name in table and len(node.args) > table[name]
        odd = name in table and table in (BUILTINS, NUMPY) and words - KEYWORDS
        return not (many or odd or words & {None, "out"})

    def _named(self, nodes: list[ast.expr]) -> bool:
        """Whether the first of these is a function or method that no array or table has."""
        first: Any = nodes[0] if nodes else None
        if isinstance(first, ast.Attribute):
            return not any(hasattr(kind, first.attr) for kind in MUTABLE)
        return isinstance(first, ast.Name) and self._means(first) is not first

    def _compare(self, node: ast.Compare) -> bool:
        """Which object it is, is another thing for what stands for an array or a number."""
        pairs = zip(node.ops, pairwise([node.left, *node.comparators]), strict=True)
        asked = [pair for how, pair in pairs if isinstance(how, ast.Is | ast.IsNot)]
        return all(any(_single(getattr(one, "value", 0)) for one in pair) for pair in asked)

    def _arg(self, node: ast.arg) -> bool:
        return node.arg != "us"  # of a function within

    def _augassign(self, node: ast.AugAssign) -> bool:
        return isinstance(node.target, ast.Attribute)  # else an array of somebody's may change

    def _subscript(self, node: ast.Subscript) -> bool:
        return isinstance(node.ctx, ast.Load)


def _sources(file: str) -> dict[tuple[int, str], Any]:
    """The bodies of all functions in a file, with their code, by first line and name."""
    linecache.checkcache(file)
    return _functions("".join(linecache.getlines(file)), file)


@cache
def _functions(text: str, file: str) -> dict[tuple[int, str], Any]:
    tree, found = ast.parse(text), dict[tuple[int, str], Any]()
    known: dict[Any, Any] = {}
    for code in _codes(
        compile(tree, file, "exec", dont_inherit=True)
    ):  # two of a name in a line are nobody's
        place = code.co_firstlineno, code.co_name
        known[place] = None if place in known else code
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            line = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            found[line, node.name] = node.body, known.get((line, node.name))
        elif isinstance(node, ast.Lambda):
            found[node.lineno, "<lambda>"] = [node.body], known.get((node.lineno, "<lambda>"))
    return found


def state(names: dict[str, Any], marks: Callable[[Any], Any]) -> Any:
    """What these locals hold, to compare; None where one may hold anything.

    marks: what an object of the tape is at this time, None for others.
    """
    try:
        return [(name, _atoms(one, marks)) for name, one in names.items()]
    except (Unknown, RecursionError, TypeError, ValueError):
        return None


def _atoms(one: Any, marks: Any) -> Any:
    kind = type(one)
    if (mark := marks(one)) is not None:
        return mark
    if kind in NUMBERS or (issubclass(kind, np.generic) and not one.dtype.hasobject):
        return kind, repr(one)
    if kind is np.ndarray and not one.dtype.hasobject and one.nbytes <= MOST_BYTES:
        return one.shape, one.strides, str(one.dtype), one.tobytes()  # sums go along these
    if kind in OPEN or isinstance(one, tuple):
        parts = _parts(one)
    elif ours(kind) and kind.__name__ in CHANGING:
        parts = [*vars(one).values()]
    elif ours(kind) or callable(one) or isinstance(one, FIXED) or seen_through(kind):
        return id(one)  # nothing writes to it
    else:
        raise Unknown
    return kind, [_atoms(part, marks) for part in parts]


def _parts(one: Any) -> list[Any]:
    """What an object of Python's own holds."""
    if type(one) is dict:  # of some of which nobody sees the keys
        return [*one, *one.values()]
    if type(one) is BuiltinMethodType:
        return [one.__self__, one.__name__]
    if type(one) is partial:
        return [one.func, one.args, one.keywords, vars(one)]
    if type(one) is not FunctionType:
        return gc.get_referents(one)
    cells = [cell.cell_contents for cell in one.__closure__ or ()]
    return [id(one), *cells, one.__defaults__, one.__kwdefaults__]


def asks_kinds(program: Any) -> bool:
    """Whether a program, or what it may call of a user's, asks type(x) or id(x), or `x is y`.

    What stands for an array is of another class, whatever isinstance says, and so are its numbers.
    """
    names, before = set[str](), -1
    while before != (before := len(names)):
        met, todo = dict[int, Any](), [program]
        while todo:
            one = todo.pop()
            if id(one) in met or type(one) in (*NUMBERS, np.ndarray):
                continue
            met[id(one)] = one
            if one is type or one is id:
                return True
            if type(one) is FunctionType:
                names |= (called := _names(one.__code__))
                if not _within(one) and _asking(one, called):
                    return True
            todo += _leads_to(one, names)
            if len(met) > MANY:
                return True
    return False


def _asking(one: FunctionType, called: set[str]) -> bool:
    """Whether a function that uses these names asks of which kind an array is, or which one."""
    asked = {"type", "id"} & _outside(one.__code__) - one.__globals__.keys()
    numbers = called & KINDS and any("array" in name or name == "require" for name in called)
    return bool(asked or numbers or _identities(one.__code__))


def _within(one: Any) -> bool:
    """Whether a function, class or module is no user's: whatever it wraps may be one."""
    return maker(one) in (*sys.stdlib_module_names, "desim", "numpy", "pydantic")


def _leads_to(one: Any, names: set[str]) -> list[Any]:
    """What an object holds that may be called, by these names or without one."""
    if type(one) is FunctionType:
        named = [] if _within(one) else [one.__globals__.get(name) for name in names]
        return [one.__closure__, one.__defaults__, one.__kwdefaults__, *named]
    if isinstance(one, ModuleType | type):
        own = [] if _within(one) else vars(one).items()
        found = [x for name, x in own if name in names or name[:2] == name[-2:] == "__"]
        return [*found, *getattr(one, "__mro__", ())]
    plain = type(one).__module__ in ("builtins", "functools", "collections")
    return gc.get_referents(one) if plain or not _within(type(one)) else []
