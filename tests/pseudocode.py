"""How much of a method's file is its pseudocode: `python -m tests.pseudocode` prints a table.

Of a file's lines blank ones, imports and what is said of the file and its classes do not count.
Pseudocode is the functions that take agents `us` or a coordinator's `hub`, and those that they
name, in the same file: steps, equations, what noise is scaled to. Parameters and their texts,
declarations, constructors, checks and claims are the rest.
"""

import ast
import inspect
from pathlib import Path

from desim.scenario import registry

ACTORS = {"us", "hub"}


def named(node):
    """Names of functions that a function's body calls or hands on: `f`, `self.f`, `self.x.f`."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and ast.unparse(part).startswith("self."):
            yield part.attr
        if isinstance(part, ast.Name):
            yield part.id


def program(tree):
    """The functions {name: node} of the pseudocode."""
    functions = {
        node.name: node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("__")
    }
    reached = {
        name for name, node in functions.items() if ACTORS & {one.arg for one in node.args.args}
    }
    while more := {one for name in reached for one in named(functions[name])} & (
        functions.keys() - reached
    ):
        reached |= more
    return {name: functions[name] for name in sorted(reached)}


def prose(tree):
    """Imports, and the docstrings of the file and its classes: nodes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.Module | ast.ClassDef) and ast.get_docstring(node) is not None:
            yield node.body[0]


def counted(text):
    """(lines of pseudocode, lines of all) of a file's text."""
    tree = ast.parse(text)
    lines = {n for n, line in enumerate(text.splitlines(), 1) if line.strip()}
    for node in prose(tree):
        lines -= set(range(node.lineno, node.end_lineno + 1))
    inside = set()
    for node in program(tree).values():
        inside |= set(range(node.lineno, node.end_lineno + 1))
    return len(inside & lines), len(lines)


def played(method):
    """The class whose program a method plays: its own, or that of the method that it changes."""
    program = "coordinator" if method.kind == "coordinator" else "agents"
    return next(one for one in method.__mro__ if program in vars(one))


def shares():
    """{name of a method: share of pseudocode in its file, and in that of its program}."""
    found = {}
    for name in registry.OWN:
        method = registry.get(name)
        files = {inspect.getfile(method), inspect.getfile(played(method))}
        lines = [counted(Path(file).read_text("utf-8")) for file in files]
        found[name] = sum(inside for inside, _ in lines) / sum(every for _, every in lines)
    return found


if __name__ == "__main__":
    for name, share in sorted(shares().items(), key=lambda one: -one[1]):
        print(f"{name:24} {100.0 * share:4.0f} %")
