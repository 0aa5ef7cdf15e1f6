"""Programs under test are text with marks: `# <-` on the line that is meant."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from torchvet.source.stores import Removal, SourceIndex, Store

MAIN = "/proj/train.py"


@dataclass
class Program:
    """Files by path, and what is asked of them."""

    files: dict[str, str]

    def index(self) -> SourceIndex:
        return SourceIndex(self.files)

    def marked(self, mark: str = "<-") -> list[tuple[str, int]]:
        """Path and line of the marks."""
        return [
            (path, number)
            for path, text in self.files.items()
            for number, line in enumerate(text.splitlines(), start=1)
            if line.endswith("# " + mark)
        ]

    def stores(self, name: str, scope: str = "__main__", path: str = MAIN, files: Sequence[str] = ()) -> list[Store]:
        return self.index().stores(name, scope, path, files)

    def removals(self, name: str, scope: str = "__main__", path: str = MAIN) -> list[Removal]:
        return self.index().removals(name, scope, path)

    def first(self, name: str, scope: str = "__main__", path: str = MAIN) -> Store:
        """The best candidate, which must stand at the one marked line."""
        found = self.stores(name, scope, path)
        assert found, f"no store into {name}"
        assert [(found[0].path, found[0].line)] == self.marked(), found[0]
        return found[0]

    def none(self, name: str, scope: str = "__main__") -> None:
        """Nothing is stored."""
        assert self.stores(name, scope) == []

    def bounded(self, name: str, scope: str = "__main__", path: str = MAIN) -> list[str]:
        """Kinds of the removals, in order; each must stand at a marked line, and each mark have one."""
        found = self.removals(name, scope, path)
        assert sorted({(r.path, r.line) for r in found}) == sorted(self.marked()), found
        return [r.kind for r in found]


def program(text: str, **others: str) -> Program:
    """A main file, and others by name (`pkg__mod` is `pkg/mod.py`)."""
    files = {MAIN: textwrap.dedent(text)}
    files |= {f"/proj/{name.replace('__', '/')}.py": textwrap.dedent(other) for name, other in others.items()}
    return Program(files)
