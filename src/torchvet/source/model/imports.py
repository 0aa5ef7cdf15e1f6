"""What an imported name stands for: `nn.Linear` is `torch.nn.Linear`, whatever `nn` was imported from."""

from __future__ import annotations

import ast
from collections.abc import Iterable

# The modules in which torch defines them: IDEs import from there.
_MOVED = (
    ("torch.nn.modules.loss.", "torch.nn."),
    ("torch.optim.optimizer.", "torch.optim."),
    ("torch.utils.data.dataloader.", "torch.utils.data."),
    ("torch.cuda.amp.grad_scaler.", "torch.cuda.amp."),
    ("torch.cuda.amp.autocast_mode.", "torch.cuda.amp."),
    ("torch.amp.grad_scaler.", "torch.amp."),
    ("torch.amp.autocast_mode.", "torch.amp."),
    ("torch.cpu.amp.autocast_mode.", "torch.cpu.amp."),
)
"""Where else torch's own names can be imported from."""
_MOVED_FROM = tuple(moved for moved, _ in _MOVED)


class Imports:
    """The imports of one file, wherever they stand: a name that is imported twice is what either import says last."""

    def __init__(self, statements: Iterable[ast.Import | ast.ImportFrom]) -> None:
        self.names: dict[str, str] = {}
        self.statements = tuple(statements)
        for statement in self.statements:
            if isinstance(statement, ast.Import):
                self._import(statement)
            else:
                self._import_from(statement)

    def _import(self, statement: ast.Import) -> None:
        for alias in statement.names:
            if alias.asname:
                self.names[alias.asname] = alias.name
            else:
                root = alias.name.partition(".")[0]
                # `import torch.nn` binds `torch`.
                self.names[root] = root

    def _import_from(self, statement: ast.ImportFrom) -> None:
        module = "." * statement.level + (statement.module or "")
        joint = "" if module.endswith(".") else "."
        for alias in statement.names:
            self.names[alias.asname or alias.name] = f"{module}{joint}{alias.name}"

    def dotted(self, node: ast.AST | None) -> str:
        """`torch.nn.Linear` for an expression that means it; empty for what is no chain of names.

        A chain whose first name was not imported stays as it is written: `self.optimizer`, `model.train`.
        """
        tail = ""
        # Asked for every call of a file: comparing the class is quicker than `isinstance`.
        while node.__class__ is ast.Attribute:
            tail = f".{node.attr}{tail}"
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        found = self.names.get(node.id, node.id) + tail
        # Rules compare with the public names only.
        if found.startswith(_MOVED_FROM):
            for moved, home in _MOVED:
                if found.startswith(moved):
                    return home + found[len(moved) :]
        return found

    def uses(self, package: str) -> bool:
        """Whether anything of a package is imported here."""
        return any(name == package or name.startswith(package + ".") for name in self.names.values())
