"""Sets an interpreter up to run a script, a module, a folder or an archive exactly as `python` itself would."""

from __future__ import annotations

import builtins
import importlib.machinery
import os
import sys
from types import CodeType, ModuleType

from torchvet.probes.base import frames
from torchvet.probes.session.overlay import content_of, fill_line_cache

COMMAND = "<string>"
"""The file name that the interpreter gives to code on the command line."""


class Target:
    """What is to run. `code` is set for a script and for code on the command line (`text`); for anything else `module`
    names what `runpy` is to run."""

    def __init__(self, path: str | None, module: str | None, arguments: list[str], text: str | None = None) -> None:
        self.path = path
        self.module = module
        self.text = text
        self.alter_argv = module is not None
        self.code: CodeType | None = None
        self.arguments = arguments
        self.search_path = os.getcwd() if path is None else _folder_of(path)

    @property
    def name(self) -> str:
        """What a report calls it."""
        return self.path or self.module or COMMAND

    @property
    def words(self) -> list[str]:
        """The interpreter's own words for it on a command line."""
        if self.text is not None:
            return ["-c", self.text]
        return [self.path] if self.path else ["-m", self.module or ""]

    def install(self) -> None:
        """Set `sys.argv`, `sys.path`, `sys.orig_argv` and `sys.modules["__main__"]`; compile a script.

        Raises OSError and SyntaxError as the interpreter would.
        """
        # The one that the launcher ran in stays alive by its frames.
        sys.modules["__main__"] = _fresh_main()
        if self.text is not None:
            self._install_text(self.text)
        elif self.path is None:
            self._install_module()
        elif _is_container(self.path):
            self._install_container(self.path)
        else:
            self._install_script(self.path)

    def _install_text(self, text: str) -> None:
        sys.argv[:] = ["-c", *self.arguments]
        # For `-c` the interpreter puts an empty text, the working directory whatever it becomes.
        self._search(self.words, force=False, first="")
        self.code = compile(text, COMMAND, "exec", dont_inherit=True)
        # `<string>` looks like generated code.
        frames.count_as_users(COMMAND)
        if sys.version_info >= (3, 13):  # from then on the interpreter quotes it in tracebacks
            fill_line_cache(COMMAND, text)

    def _install_module(self) -> None:
        assert self.module is not None
        sys.argv[:] = ["-m", *self.arguments]  # runpy puts the file's path in place of "-m", as it does natively
        self._search(["-m", self.module], force=False)

    def _install_container(self, path: str) -> None:
        self.module = "__main__"
        self.search_path = _absolute(path)
        sys.argv[:] = [path, *self.arguments]
        # A folder or archive is searched whatever the flags say: its `__main__` lies there.
        self._search([path], force=True)

    def _install_script(self, path: str) -> None:
        sys.argv[:] = [path, *self.arguments]
        self._search([path], force=False)
        absolute = _absolute(path)
        self.code, compiled = _load(absolute)
        loader = importlib.machinery.SourcelessFileLoader if compiled else importlib.machinery.SourceFileLoader
        vars(sys.modules["__main__"]).update(
            __file__=absolute, __cached__=None, __loader__=loader("__main__", absolute)
        )

    def _search(self, operands: list[str], force: bool, first: str | None = None) -> None:
        """Put the program's own folder first on `sys.path`, unless the interpreter was told not to."""
        if force or not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
            sys.path.insert(0, self.search_path if first is None else first)
        # Interpreter options stand before it.
        own = next((i for i, word in enumerate(sys.orig_argv) if word.endswith("_importlib_bootstrap.py")), 1)
        sys.orig_argv[:] = [*sys.orig_argv[:own], *operands, *self.arguments]

    def forget_shadowed(self, known: frozenset[str]) -> None:
        """Forget modules loaded since `known` was taken that the program has files of the same name for.

        The program's `queue.py` would be found before the standard library's; that torchvet has loaded the latter
        must not change that.
        """
        try:
            present = set(os.listdir(self.search_path))
        except OSError:
            return
        for name in {m.partition(".")[0] for m in set(sys.modules) - known} - {"torchvet"}:
            if _could_import(name, self.search_path, present):
                # Submodules too, or the program's package would get the library's.
                for loaded in [m for m in sys.modules if m == name or m.startswith(name + ".")]:
                    del sys.modules[loaded]


def _fresh_main() -> ModuleType:
    """A `__main__` as the interpreter makes it."""
    main = ModuleType("__main__")
    main.__loader__ = importlib.machinery.BuiltinImporter
    if sys.version_info < (3, 14):
        # From 3.14 on modules have theirs lazily.
        main.__annotations__ = {}
    vars(main)["__builtins__"] = builtins
    return main


def _absolute(path: str) -> str:
    """Absolute as the interpreter makes it: joined to the working directory, not normalised."""
    return os.path.join(os.getcwd(), path)


def _folder_of(path: str) -> str:
    return os.path.dirname(os.path.realpath(path))


def _is_container(path: str) -> bool:
    """Whether the import system can look inside, as in a folder or a zip archive."""
    from pkgutil import get_importer

    return get_importer(_absolute(path)) is not None


def _load(path: str) -> tuple[CodeType, bool]:
    """The code in a file, and whether it was compiled already."""
    from importlib.util import MAGIC_NUMBER

    text = content_of(path)
    if text is None:
        with open(path, "rb") as stream:
            text = stream.read()
    # The interpreter goes by the magic number as well, whatever the file is called.
    if path.endswith(".pyc") or text[:4] == MAGIC_NUMBER:
        import marshal

        # Sixteen bytes of header: magic, flags, time or hash, size.
        return marshal.loads(text[16:]), True
    # Otherwise the `__future__` imports of this file hold in the program.
    return compile(text, path, "exec", dont_inherit=True), False


def _could_import(name: str, folder: str, present: set[str]) -> bool:
    if any(name + suffix in present for suffix in importlib.machinery.all_suffixes()):
        return True
    return name in present and os.path.exists(os.path.join(folder, name, "__init__.py"))
