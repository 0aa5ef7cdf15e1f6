"""From a line that a run found to the code that stands there, for edits that source alone would not be sure of."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from torchvet.source import holder
from torchvet.source.model import edits
from torchvet.source.model.units import receiver, terminal

if TYPE_CHECKING:
    from torchvet.finding import Edit, Finding, Related
    from torchvet.recording import Recording
    from torchvet.source.model import Event, SourceFile, Unit

_NO_TENSOR = (ast.Constant, ast.JoinedStr, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp,
              ast.GeneratorExp, ast.Lambda, ast.Compare, ast.BoolOp)  # fmt: skip
_NUMBERS = {"item", "tolist", "float", "int", "len", "str"}


def unit_of(file: SourceFile, finding: Finding) -> Unit | None:
    """The code around the line of a finding; None where that is in another file."""
    at = finding.location
    return file.unit_at(at.line) if at is not None and at.path == file.path else None


def events_at(file: SourceFile, finding: Finding) -> list[Event]:
    """What happens on the line of a finding, in the order of evaluation."""
    at = finding.location
    return file.events_on(at.line) if at is not None and at.path == file.path else []


def places_of(file: SourceFile, finding: Finding) -> list[int]:
    """The lines of a file that a finding is about: its own, and those that store what it is about."""
    places = [finding.location, *(r for r in finding.related if r.role == "stored")]
    return [p.line for p in places if p is not None and p.path == file.path and p.line is not None]


def calls_at(file: SourceFile, finding: Finding, *names: str) -> Iterator[tuple[Event, ast.expr]]:
    """The calls of methods by these names on the line of a finding, each with what it is called on."""
    for event in events_at(file, finding):
        on = receiver(event.call) if isinstance(event.node, ast.Call) else None
        if on is not None and terminal(event.node) in names:
            yield event, on


def storing(finding: Finding) -> Related | None:
    """The line that stores, where a finding is at a call that hands in what that line stores."""
    return next((r for r in finding.related if r.role == "stored"), None)


def all_or_none(made: Iterable[Sequence[Edit]]) -> Sequence[Edit]:
    """Edits that are only right together: none, where one of them could not be made."""
    each = list(made)
    # An empty one among them means that it could not be made.
    return [edit for one in each for edit in one] if all(each) else ()


def held(finding: Finding) -> str:
    """The last identifier of what a finding says holds the memory."""
    name = holder.parse(finding.holder.name) if finding.holder is not None else None
    return name.terminal.name if name is not None else ""


def may_be_tensor(node: ast.expr) -> bool:
    """Whether an expression may be one tensor: no number taken out of one, no container written down, and no object
    made of a class (`Transition(…)`)."""
    if isinstance(node, ast.Call):
        # `Net()(x)` calls what was made, and gives its output.
        made = not isinstance(node.func, ast.Call) and _makes_an_object(terminal(node))
        return terminal(node) not in _NUMBERS and not made
    return not isinstance(node, _NO_TENSOR)


def _makes_an_object(called: str) -> bool:
    """Whether what is called by this name is a class, by the custom of names, and none of tensors."""
    return called.lstrip("_")[:1].isupper() and not called.endswith(("Tensor", "Parameter"))


def with_method(file: SourceFile, node: ast.expr, method: str) -> Sequence[Edit]:
    """A method called on an expression where it stands; nothing where it goes over several lines."""
    return [edits.called_on(file, node, method)] if edits.on_one_line(node) and may_be_tensor(node) else ()


def recorded_source(recording: Recording, path: str) -> SourceFile | None:
    """The source of a file as it was when the program ran; None where it is not known, or is no Python."""
    from torchvet.source.model import SourceFile

    try:
        return SourceFile(path, recording.sources[path])
    # `ValueError`: a null byte.
    except (KeyError, SyntaxError, ValueError, RecursionError):
        return None
