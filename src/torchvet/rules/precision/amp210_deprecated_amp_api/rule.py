"""AMP210: names of `torch.cuda.amp` and `torch.cpu.amp`, which are deprecated."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Edit, Finding, Iterator, Sequence, SourceFile
from torchvet.rules.precision import _amp_names as names
from torchvet.rules.precision.fixes.moves import together
from torchvet.rules.shared.order_rule import EventRule
from torchvet.source.model import Event, edits
from torchvet.source.statements import spans

_Import = ast.Import | ast.ImportFrom
_MODULE = re.compile(r"torch\s*\.\s*(cuda|cpu)(\s*\.\s*amp(\.autocast_mode|\.grad_scaler)?)?\b")


class DeprecatedAMPAPI(EventRule):
    """`torch.cuda.amp` and `torch.cpu.amp` are deprecated; `torch.amp` takes the device."""

    severity = "info"
    words = (".amp", " amp")

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """Imports of the old modules that are used, and uses that spell the module out."""
        if not file.mentions("cuda.amp", "cpu.amp", "cuda import amp", "cpu import amp"):
            return
        imported, uses = set(), names.uses(file)
        for statement in file.imports.statements:
            bound = list(_bound(statement))
            imported |= {name for name, _ in bound}
            if bound:
                yield from self._imported(file, statement, bound, uses)
        for use in uses:
            if use.root not in imported and not names.guarded(use.event):
                text, made = file.segment(use.function), _spelt_out(file, use)
                yield self._finding(use.event, use.function, text, use.device, made)

    def _imported(
        self, file: SourceFile, statement: _Import, bound: list[tuple[str, str]], uses: list[names.Use]
    ) -> Iterator[Finding]:
        unit = file.unit_at(statement.lineno)
        plain = statement in unit.node.body
        if not plain and file.mentions("torch.amp", "hasattr(torch"):
            return
        collected = [_edits_of(file, name, uses) for name, _ in bound]
        if all(c == [] for c in collected):
            return  # imported and never used, or only named
        sure = plain and None not in collected and all(_is_bound_once(file, name) for name, _ in bound)
        moved = _moved(file, statement, len(bound)) if sure else []
        made = [*moved, *(edit for one in collected if one for edit in one)] if moved else []
        listed = ", ".join(name for name, _ in bound)
        yield self._finding(names.at(statement, unit), statement, listed, bound[0][1], made)

    def _finding(self, at: Event, node: ast.AST, what: str, device: str, made: Sequence[Edit]) -> Finding:
        return self.suspect_at(
            at,
            f"{what}: torch.{device}.amp is deprecated",
            node=node,
            cause=f"torch.{device}.amp is a front of torch.amp that gives a FutureWarning since torch 2.4",
            advice=f'use torch.amp and give the device: `torch.amp.autocast("{device}", …)`, '
            f'`torch.amp.GradScaler("{device}", …)`; needs torch 2.4 or later',
            safe=bool(made),
            edits=made,
        )


def _bound(statement: _Import) -> Iterator[tuple[str, str]]:
    """The names that an import binds to deprecated things, each with its device."""
    if isinstance(statement, ast.Import):
        known = (alias for alias in statement.names if alias.name in names.DEVICES and alias.asname)
        yield from ((alias.asname or "", names.DEVICES[alias.name]) for alias in known)
        return
    module = re.sub(r"\.(autocast_mode|grad_scaler)$", "", statement.module or "")
    for alias in statement.names:
        home = module if alias.name in names.NAMES else f"{module}.{alias.name}"
        if home in names.DEVICES:
            yield alias.asname or alias.name, names.DEVICES[home]


def _is_bound_once(file: SourceFile, name: str) -> bool:
    """Whether one import binds a name, and nothing else in the file does."""
    imports = sum((a.asname or a.name) == name for s in file.imports.statements for a in s.names)
    assigned = any(unit.bindings.get(name) for unit in file.units_with(name))
    return imports == 1 and not assigned and not file.functions(name) and name not in file.classes


def _moved(file: SourceFile, statement: _Import, bound: int) -> list[Edit]:
    """The edit of the import itself; nothing where it also imports other things."""
    match = _MODULE.search(file.lines[statement.lineno - 1], statement.col_offset)
    if match is None or len(statement.names) != bound:
        return []
    text = "torch" if match.group(2) is None else "torch.amp"
    start, end = (statement.lineno, match.start() + 1), (statement.lineno, match.end() + 1)
    return [Edit(path=file.path, start=start, end=end, text=text)]


def _edits_of(file: SourceFile, name: str, uses: list[names.Use]) -> list[Edit] | None:
    """Edits of everything that an imported name is used for; None where one use is not plain."""
    mine, places = [use for use in uses if use.root == name], names.places(file, name)
    if places is None or any(use.edits is None for use in mine):
        return None
    known = {edits.start_of(file, use.function) for use in mine}
    if not all(place in known or _stays_right(file, place[0], before) for place, before in places):
        return None
    made = (edit for use in mine for edit in use.edits or ())
    return list({(edit.start, edit.text): edit for edit in made}.values())


def _stays_right(file: SourceFile, line: int, before: str) -> bool:
    """Whether a use that is no call stays right: in an annotation, in `isinstance`, or in the import itself."""
    return names.only_names_a_type(before) or any(spans([s], line) for s in file.imports.statements)


def _spelt_out(file: SourceFile, use: names.Use) -> list[Edit]:
    """`torch.amp` in the place of `torch.cuda.amp` where that is written in full."""
    home = getattr(getattr(use.function, "value", None), "value", None)  # torch.cuda of torch.cuda.amp.autocast
    root = getattr(home, "value", None)
    tested = re.search(rf"isinstance\([^()]*\.amp\.{use.name}\b", file.text)
    if not isinstance(root, ast.Name) or file.imports.names.get(root.id) != "torch" or tested or use.edits is None:
        return []
    return together([edits.replace(file, use.function, f"{root.id}.amp.{use.name}")], use.edits)
