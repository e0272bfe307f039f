"""Where a Flower app is, what its pyproject says of it, and how it is loaded anew for each play.

The keys of `[tool.flwr.app]` and the meaning of `module:attribute` are those of Flower's own
documentation of its apps (flower.ai/docs/framework). Nothing here imports flwr before it is needed.
"""

import importlib
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from desim.errors import InputError, raised, refusal, require

OLDEST = 1, 42  # of flwr: whose Grid, messages and strategies these are
ROUNDS = ("num-server-rounds", "num_server_rounds", "num-rounds", "num_rounds", "rounds")
FOREIGN = "site-packages", "dist-packages"  # folders of libraries, which are not loaded anew


def require_flower(what: str) -> None:
    """InputError where flwr is missing or older than OLDEST."""
    require(what, "flwr", "flower")
    try:
        found = version("flwr")
    except PackageNotFoundError:
        return  # a copy that says nothing of itself
    parts = tuple(int(one) for one in found.split(".")[:2] if one.isdigit())
    if parts < OLDEST:
        least = ".".join(map(str, OLDEST))
        text = f"{what}: found flwr {found}; allowed: at least {least}"
        raise InputError(f"{text} (pip install 'desim[flower]')")


class Parts(NamedTuple):
    """A ServerApp and a ClientApp, as their modules have them."""

    server: Any
    client: Any


@dataclass(frozen=True)
class App:
    """A folder, the references `module:attribute` of both parts, and the run's configuration."""

    folder: Path
    server: str
    client: str
    config: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """What a run of it is called: its folder."""
        return self.folder.resolve().name

    @property
    def rounds(self) -> int | None:
        """How many rounds its configuration says, None where it says nothing."""
        known = dict(self.config)
        found = [known[key] for key in ROUNDS if type(known.get(key)) is int and known[key] > 0]
        return int(found[0]) if found else None

    def loaded(self) -> Parts:
        """Both parts from modules that nobody has used; InputError for what is not there.

        What a strategy or a model keeps in a module would else go from one play to the next.
        """
        require_flower("flower")
        from flwr.clientapp import ClientApp
        from flwr.serverapp import ServerApp

        _forget(self.folder.resolve())
        known = {*sys.modules}
        server = _attribute(self.server, self.folder, "server")
        client = _attribute(self.client, self.folder, "client")
        _ours.update({*sys.modules} - known)
        for what, reference, one, kind in (
            ("server", self.server, server, ServerApp),
            ("client", self.client, client, ClientApp),
        ):
            if not isinstance(one, kind):
                text = f"found {reference}, a {type(one).__name__}"
                raise InputError(f"flower: {what}: {text}; allowed: a {kind.__name__}")
        return Parts(server, client)


_ours: set[str] = set()  # modules that an app brought
_paths: list[str] = []  # folders of apps on sys.path


def _forget(folder: Path) -> None:
    """Let the next import of the app's modules read their files again."""
    for name in [*_ours]:
        if (module := sys.modules.get(name)) is not None and _own(module, None):
            del sys.modules[name]
    _ours.clear()
    for one in [*_paths]:
        if one in sys.path:
            sys.path.remove(one)
    _paths[:] = [str(folder)]
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


def _own(module: Any, folder: Path | None) -> bool:
    """Whether a module's file is an app's: no library's, and in this folder."""
    file = getattr(module, "__file__", None)
    if file is None or module.__name__.split(".")[0] in ("desim", "flwr"):
        return False
    path = Path(file).resolve()
    if set(FOREIGN) & {*path.parts} or Path(sys.base_prefix) in path.parents:
        return False
    return folder is None or folder in path.parents


def _attribute(reference: str, folder: Path, what: str) -> Any:
    """What `module:attribute` names, imported from the folder."""
    module, colon, names = reference.partition(":")
    if not (module and colon and names):
        allowed = "module:attribute, such as server:app"
        raise InputError(f"flower: {what}: {refusal(reference, allowed)}")
    top = module.split(".")[0]
    if (other := sys.modules.get(top)) is not None and not _own(other, folder.resolve()):
        if (folder / f"{top}.py").exists() or (folder / top).is_dir():
            for name in [one for one in sys.modules if one.split(".")[0] == top]:
                del sys.modules[name]
    try:
        found = importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        missing = error.name == module or module.startswith(f"{error.name}.")
        text = f"found no module {error.name}" + (f" in {folder}" if missing else "")
        allowed = "a module there" if missing else "to install what the app imports"
        raise InputError(f"flower: {what}: {reference}: {text}; allowed: {allowed}") from error
    except BaseException as error:
        text = f"importing it raised {raised(error)}"
        raise InputError(f"flower: {what}: {reference}: {text}") from error
    for name in names.split("."):
        if not hasattr(found, name):
            here = ", ".join(_apps(found)) or "none there"
            text = f"{reference}: found no {name} in {module}"
            raise InputError(f"flower: {what}: {text}; allowed: a name of an app ({here})")
        found = getattr(found, name)
    return found


def _apps(module: Any) -> Iterator[str]:
    kinds = "ServerApp", "ClientApp"
    yield from (name for name, one in vars(module).items() if type(one).__name__ in kinds)


# Finding an app by what is written on a command line or in a scenario.


def found(
    folder: Path, server: str | None = None, client: str | None = None,
    config: Sequence[str] = (),
) -> App:  # fmt: skip
    """The app of a folder; InputError where there is none.

    server, client: references that take the place of those of its pyproject.toml; config: texts
    KEY=VALUE, values as TOML has them, that override the configuration there.
    """
    if not folder.is_dir():
        why = "is a file" if folder.exists() else "does not exist"
        allowed = "the folder of a Flower app, or server:app and client:app"
        raise InputError(f"flower: app: {folder} {why}; allowed: {allowed}")
    own = _pyproject(folder, needed=server is None or client is None)
    parts = _section(own, "components")
    references = {}
    for key, reference in (("serverapp", server), ("clientapp", client)):
        reference = reference or parts.get(key)
        if not isinstance(reference, str):
            where = f"{folder / 'pyproject.toml'}: [tool.flwr.app.components]"
            raise InputError(f"flower: {where}: found no {key}; allowed: {key} = 'module:app'")
        references[key] = reference
    known = dict(_flat(_section(own, "config")))
    for text in config:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InputError(f"flower: config: {refusal(text, 'KEY=VALUE')}")
        if known and key.strip() not in known:
            raise InputError(f"flower: config: {refusal(text, ', '.join(known), known)}")
        known[key.strip()] = _value(value.strip())
    for key, one in known.items():
        if not isinstance(one, str | int | float):  # all that Flower takes
            allowed = "text, a number, true or false"
            raise InputError(f"flower: config: {key}: {refusal(str(one), allowed)}")
    return App(folder, references["serverapp"], references["clientapp"], tuple(known.items()))


def supernodes(folder: Path) -> int | None:
    """How many nodes a pyproject.toml simulates by itself, None where it does not say."""
    try:
        flower = _tool(folder)
        options = flower["federations"][flower["federations"]["default"]]["options"]
        number = options["num-supernodes"]
        return number if type(number) is int and number > 0 else None
    except (KeyError, TypeError, InputError, OSError):
        return None


def _pyproject(folder: Path, needed: bool) -> Mapping[str, Any]:
    """The section [tool.flwr.app]."""
    file = folder / "pyproject.toml"
    if not file.is_file():
        if not needed:
            return {}
        allowed = "a folder with one, or server:app and client:app"
        raise InputError(f"flower: app: {folder} has no pyproject.toml; allowed: {allowed}")
    own = _tool(folder).get("app")
    if not isinstance(own, Mapping):
        if not needed:
            return {}
        text = f"flower: {file}: found no section [tool.flwr.app]"
        raise InputError(f"{text}; allowed: one with components.serverapp and .clientapp")
    return own


def _tool(folder: Path) -> Mapping[str, Any]:
    file = folder / "pyproject.toml"
    try:
        tree: Any = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"flower: {file}: is no TOML ({error})") from None
    return _section(_section(tree, "tool"), "flwr")


def _section(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table of a tree; an empty one where there is none."""
    found = tree.get(name)
    return found if isinstance(found, Mapping) else {}


def _flat(tree: Mapping[str, Any], head: str = "") -> Iterator[tuple[str, Any]]:
    """Values by dotted key, as Flower's run_config has them."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{head}{key}.")
        else:
            yield f"{head}{key}", value


def _value(text: str) -> Any:
    """A value as TOML has it; else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
