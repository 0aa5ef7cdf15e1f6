"""AMP210: names of `torch.cuda.amp` and `torch.cpu.amp`, which are deprecated."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Edit, Finding, Iterator, Rule, SourceFile
from torchvet.rules.precision import _amp_names as names
from torchvet.source.model import Event, edits, terminal

_Import = ast.Import | ast.ImportFrom


class DeprecatedAMPAPI(Rule):
    """Names of `torch.cuda.amp` and `torch.cpu.amp`, which are deprecated."""

    code = "AMP210"
    name = "deprecated-amp-api"
    summary = "`torch.cuda.amp` and `torch.cpu.amp` are deprecated; `torch.amp` takes the device"
    severity = "info"
    words = (".amp", " amp")

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """Imports of the old modules that are used, and uses that spell the module out."""
        if not file.mentions("cuda.amp", "cpu.amp", "cuda import amp", "cpu import amp"):
            return
        imported = set()
        for statement in file.imports.statements:
            for local, module, device in self._bound(statement):
                imported.add(local)
                yield from self._imported(file, statement, local, module, device)
        for call, event in names.calls(file):
            if _root(call.func) not in imported and not names.guarded(event):
                yield self._spelt_out(file, event, call.func, names.converted(file, call, *_meaning(file, call.func)))
        for one, event in names.decorators(file):
            if not isinstance(one, ast.Call) and _root(one) not in imported:
                yield self._spelt_out(file, event, one, self._bare(file, one))

    @staticmethod
    def _bound(statement: _Import) -> Iterator[tuple[str, str, str]]:
        """The names that an import binds to deprecated things: the name, the module it comes from, the device."""
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.name in names.DEVICES and alias.asname:
                    yield alias.asname, alias.name, names.DEVICES[alias.name]
            return
        module = re.sub(r"\.(autocast_mode|grad_scaler)$", "", statement.module or "")
        for alias in statement.names:
            if module in names.DEVICES and alias.name in names.NAMES:
                yield alias.asname or alias.name, module, names.DEVICES[module]
            elif f"{module}.{alias.name}" in names.DEVICES:
                yield alias.asname or alias.name, module, names.DEVICES[f"{module}.{alias.name}"]

    # Imported names ----------------------------------------------------------------------------------------------

    def _imported(
        self, file: SourceFile, statement: _Import, local: str, module: str, device: str
    ) -> Iterator[Finding]:
        bound = list(self._bound(statement))
        if bound[0][0] != local:  # one finding for an import
            return
        unit = file.unit_at(statement.lineno)
        plain = statement in unit.node.body
        if not plain and (file.mentions("torch.amp") or file.mentions("hasattr(torch")):
            return
        collected = [self._edits_of(file, name) for name, _, _ in bound]
        if not any(c is None or c for c in collected):
            return  # imported and never used, or only named
        one_meaning = all(self._imports_of(file, name) == 1 for name, _, _ in bound)
        moved = self._moved(file, statement, bound) if plain and one_meaning else None
        sure = moved is not None and all(c is not None for c in collected)
        found = [moved, *(e for c in collected if c for e in c)] if sure else []
        listed = ", ".join(n for n, _, _ in bound)
        yield self._finding(file, names.at(statement, unit), statement, listed, device, [e for e in found if e])

    @staticmethod
    def _imports_of(file: SourceFile, name: str) -> int:
        """How often imports, definitions and assignments bind a name in the file."""
        imports = sum((a.asname or a.name) == name for s in file.imports.statements for a in s.names)
        assigned = sum(len(u.bindings.get(name, ())) for u in file.units_with(name))
        return imports + assigned + len(file.functions(name)) + (name in file.classes)

    @staticmethod
    def _moved(file: SourceFile, statement: _Import, bound: list[tuple[str, str, str]]) -> Edit | None:
        """The edit of the import itself; None where it also imports other things."""
        if len(statement.names) != len(bound):
            return None
        line = file.lines[statement.lineno - 1]
        match = re.compile(r"torch\s*\.\s*(cuda|cpu)(\s*\.\s*amp(\.autocast_mode|\.grad_scaler)?)?\b").search(
            line, statement.col_offset
        )
        if match is None:
            return None
        text = "torch" if match.group(2) is None else "torch.amp"
        start, end = (statement.lineno, match.start() + 1), (statement.lineno, match.end() + 1)
        return Edit(path=file.path, start=start, end=end, text=text)

    def _edits_of(self, file: SourceFile, name: str) -> list[Edit] | None:
        """Edits of everything that an imported name is used for; None where one use is not plain."""
        made: list[Edit] = []
        known = set()
        for call, _ in names.calls(file):
            if _root(call.func) == name:
                edit = names.converted(file, call, *_meaning(file, call.func))
                if edit is None:
                    return None
                known.add(edits.start_of(file, call.func))
                made += edit
        for one, _ in names.decorators(file):
            if not isinstance(one, ast.Call) and _root(one) == name:
                known.add(edits.start_of(file, one))
                made += self._bare(file, one)
        places = names.uses(file, name)
        if places is None or any(p not in known and not self._fits(file, p, before) for p, before in places):
            return None
        return list({(e.start, e.text): e for e in made}.values())

    @staticmethod
    def _fits(file: SourceFile, place: tuple[int, int], before: str) -> bool:
        """Whether a use that is no call is one that stays right: the import itself, an annotation, `isinstance`."""
        importing = any(s.lineno <= place[0] <= (s.end_lineno or 0) for s in file.imports.statements)
        return importing or names.only_names_a_type(before)

    # Names spelt out ---------------------------------------------------------------------------------------------

    def _spelt_out(self, file: SourceFile, event: Event, function: ast.expr, made: list[Edit] | None) -> Finding:
        name, device = _meaning(file, function)
        home = getattr(getattr(function, "value", None), "value", None)  # torch.cuda of torch.cuda.amp.autocast
        root = getattr(home, "value", None)
        plain = isinstance(root, ast.Name) and file.imports.names.get(root.id) == "torch"
        tested = bool(re.search(rf"isinstance\([^()]*\.amp\.{name}\b", file.text))
        if made is None or tested or not plain or not isinstance(root, ast.Name):
            return self._finding(file, event, function, file.segment(function), device, [])
        moved = edits.replace(file, function, f"{root.id}.amp.{name}")
        return self._finding(file, event, function, file.segment(function), device, [moved, *made])

    @staticmethod
    def _bare(file: SourceFile, decorator: ast.expr) -> list[Edit]:
        """`@custom_fwd` gets its device as an argument."""
        end = edits.end_of(file, decorator)
        device = _meaning(file, decorator)[1]
        return [Edit(path=file.path, start=end, end=end, text=f'(device_type="{device}")')]

    def _finding(self, file: SourceFile, at: Event, node: ast.AST, what: str, device: str,
                 made: list[Edit]) -> Finding:  # fmt: skip
        return self.suspect(
            file, at, f"{what}: torch.{device}.amp is deprecated", node=node,
            cause=f"torch.{device}.amp is a front of torch.amp that gives a FutureWarning since torch 2.4",
            advice=f'use torch.amp and give the device: `torch.amp.autocast("{device}", …)`, '
            f'`torch.amp.GradScaler("{device}", …)`; needs torch 2.4 or later',
            safe=bool(made), edits=made,
        )  # fmt: skip


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else terminal(node)


def _meaning(file: SourceFile, node: ast.expr) -> tuple[str, str]:
    """The last name and the device of what is known to be a deprecated name."""
    device, name = names.deprecated(file.dotted(node)) or ("", "")
    return name, device
