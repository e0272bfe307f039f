"""What compiled functions take in of each other, apart from what Python calls.

Of every function numba makes wrappers for Python and C, and machine code of these and of all that
they call. Most functions are called by compiled ones alone, where the same is done again. So a
function of desim is two: its entrance, compiled when Python calls it, and its part, when compiled
functions do. A part has no wrappers and no machine code. One that vanishes into its callers is
linked to them before they are optimised, and is not optimised itself if it is large: only where all
that vanishes has come together. One that stays a function is optimised, and linked afterwards.

This changes methods inside numba that are the same from 0.62 to 0.68. Where one is missing a
function is compiled as numba does it, which takes twice as long. What numba compiles by itself, as
functions of plug-ins and loops of parallel kernels, calls parts, too.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from numba.core import caching, codegen, compiler
from numba.core.dispatcher import Dispatcher

ENVIRONMENT = "_ZN08NumbaEnv"  # begins the names of what Python tells compiled code, by address
MANGLED = "_ZN"  # begins the names of functions that numba compiled
SMALL = 100  # basic blocks: a part that vanishes is optimised once for all its callers
_Library: Any = getattr(codegen, "JITCodeLibrary", object)
_Kept: Any = getattr(caching, "CompileResultCacheImpl", object)
CHANGED = {
    _Library: (
        "add_linking_library", "_optimize_functions", "_optimize_final_module", "_ensure_finalized",
        "_finalize_final_module", "_finalize_dynamic_globals", "_get_module_for_linking",
    ),
    _Kept: ("get_filename_base", "rebuild"),
    compiler.Compiler: ("define_pipelines",),
    Dispatcher: ("get_call_template", "get_overload"),
}  # fmt: skip


def possible() -> bool:
    """Whether this numba has all that is changed here."""
    return all(hasattr(one, name) for one, names in CHANGED.items() for name in names)


class _Code(_Library):  # type: ignore[misc]
    """The code of one function, and which parts it calls: libraries, each after those it calls."""

    _final_module: Any
    _shared_module: Any
    vanishes = False  # whether it does not stay a function where it is called

    def __init__(self, *arguments: Any, **names: Any) -> None:
        super().__init__(*arguments, **names)
        self.taken_in: dict[Any, None] = {}
        self.called: dict[Any, None] = {}

    def add_linking_library(self, library: Any) -> None:
        """Note a part that this function calls; numba links all others before it optimises."""
        if not isinstance(library, Part):
            super().add_linking_library(library)
            return
        library._ensure_finalized()
        self.called |= library.called
        (self.taken_in if library.vanishes else self.called)[library] = None

    def _optimize_functions(self, module: Any) -> None:
        """Take from a function what is only how numba writes it, to link and inline less."""
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.add_instruction_combine_pass()
        passes.run(module, self._codegen._pass_builder())

    def _optimize_final_module(self) -> None:
        for part in self.taken_in:
            self._final_module.link_in(part.code, preserve=True)
        blocks = sum(1 for function in self._final_module.functions for _ in function.blocks)
        if blocks <= SMALL or not self.vanishes:
            passes, builder = self._codegen._module_pass_manager()  # once, where numba does twice
            passes.run(self._final_module, builder)

    def _places(self, *others: str) -> Any:
        """A module with the places of what Python tells the code, and with what else is given."""
        variables = self._final_module.global_variables
        places = [str(one) for one in variables if one.name.startswith(ENVIRONMENT)]
        empty = str(self._codegen._create_empty_module(self.name))
        return llvm.parse_assembly("\n".join([empty, *places, *others]))


class Entrance(_Code):
    """The code of a function that Python calls."""

    linked = False  # whether compiled functions call it themselves, for it has no part

    def _optimize_final_module(self) -> None:
        super()._optimize_final_module()
        _complete(self._final_module, self.called)

    def _get_module_for_linking(self) -> Any:
        """What is kept beside machine code: names, for to read the rest is most of a load."""
        if self.linked:
            return super()._get_module_for_linking()
        self._ensure_finalized()
        if self._shared_module is None:
            names = [one.name for one in self._final_module.functions if _public(one)]
            bare = (f'define void @"{name}"() {{ ret void }}' for name in names)
            self._shared_module = self._places(*bare)
        return self._shared_module


class Part(_Code):
    """The code of a function for those that call it."""

    code: Any = None  # what they link: without the parts that it calls

    def _finalize_final_module(self) -> None:
        """Leave the engine nothing to compile but the places of what Python tells the code."""
        self._finalize_dynamic_globals()
        code = self.code = self._final_module
        for function in code.functions:
            if _public(function):
                function.linkage = "linkonce_odr"
        self._final_module = self._places()
        self._final_module.name = code.name
        super()._finalize_final_module()

    def _get_module_for_linking(self) -> Any:
        """The code with the parts that it calls, to be kept, and for what is compiled otherwise."""
        self._ensure_finalized()
        if self._shared_module is None:
            self._shared_module = self.code.clone()
            _complete(self._shared_module, self.called)
        return self._shared_module


def _public(function: Any) -> bool:
    """Whether a module defines this function for others."""
    return not function.is_declaration and function.linkage == llvm.Linkage.external


def _complete(module: Any, called: dict[Any, None]) -> None:
    """Link parts, callers first: of what nobody in the module calls yet nothing is linked."""
    for part in reversed(called):
        module.link_in(part.code, preserve=True)
    for one in module.functions:
        if one.is_declaration and one.name.startswith(MANGLED):
            raise AssertionError(f"{one.name} is called and not linked")  # it would crash


def _compiler(library: type[_Code]) -> type[compiler.Compiler]:
    """Numba's compiler, for this kind of code."""

    class Own(compiler.Compiler):  # type: ignore[misc]
        def define_pipelines(self) -> Any:
            state = self.state
            state.library = library(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.vanishes = state.flags.forceinline and library is Part
            state.library.linked = state.flags.auto_parallel.enabled
            state.library.enable_object_caching()
            return super().define_pipelines()

    return Own


class KeptPart(_Kept):  # type: ignore[misc]
    """How a part is kept: beside its entrance, under a name of its own, with the parts it calls."""

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        """What its files' names begin with."""
        return f"part-{super().get_filename_base(fullname, abiflags)}"

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """The part that was stored."""
        found = super().rebuild(target_context, payload)
        library = found.library
        library.__class__, library.code = Part, library._shared_module
        library.vanishes, library.taken_in, library.called = found.fndesc.inline, {}, {}
        return found


ENTRANCE: dict[str, Any] = {}  # options of numba for each, none where that is not possible
PART: dict[str, Any] = {}
if possible():
    ENTRANCE = {"no_cfunc_wrapper": True, "pipeline_class": _compiler(Entrance)}
    PART = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": _compiler(Part)}


def leads_to(entrance: Any, make: Callable[[], Any]) -> Any:
    """The compiled function: what other compiled functions call is a part, made when one does."""
    entrance.part = cache(make)
    entrance.get_call_template = lambda *types: entrance.part().get_call_template(*types)
    entrance.get_overload = lambda signature: entrance.part().get_overload(signature)
    return entrance
