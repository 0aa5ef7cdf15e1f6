"""OPS105: the same data is copied to the device again in every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torchvet.rules.core.fixing import recorded_source
from torchvet.rules.kit import Edit, Finding, Place, RankRecording, Recording, SourceFile, calls_at
from torchvet.rules.operations._crossings import CrossingRule, amount, is_known, mostly
from torchvet.rules.operations.fixes.moves import moved_once
from torchvet.source.model import Unit, keyword, name_set, terminal

if TYPE_CHECKING:
    from torchvet.recording.records.crossing import Crossing

_MAKING = name_set("torch.tensor torch.as_tensor torch.FloatTensor torch.LongTensor")


class ConstantMovedEachStep(CrossingRule):
    """The same data is copied to the device again in every step."""

    severity = "warning"
    words = ()
    cost = "transfers"

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The move done once, where one on the line is of a name that nothing else reads."""
        found = [moved_once(file, event) for event, _ in calls_at(file, finding, "to", "cuda")]
        made = [one for one in found if one]
        return made[0] if len(made) == 1 else ()

    def brought(self, rank: RankRecording, record: Crossing, recording: Recording) -> Iterator[Finding]:
        """Lines that bring, in every step, the very tensor that they brought before, or numbers that they write out
        themselves."""
        if mostly(record.repeated, record):
            message = (
                f"the same tensor, {record.examples}, is copied to the device again in every step: {amount(record)}"
            )
            cause = "it stays on the host and nothing writes to it between the copies"
            advice = "move it once, before the loop; in a module, register it as a buffer"
            yield self.crossing(rank, record, message, cause, advice)
            return
        numbers = "" if record.back or is_known(record) else _numbers_at(record.place, recording)
        if numbers:
            message = (
                f"the same numbers, {numbers}, are made into a tensor on the host and copied to the device in every "
                f"step: {amount(record)}"
            )
            cause = (
                "they are written out in the program; each copy comes from memory that is not pinned, and the host "
                "waits for it"
            )
            advice = "make the tensor once on the device, before the loop; in a module, register it as a buffer"
            yield self.crossing(rank, record, message, cause, advice, severity="info")


def _numbers_at(place: Place, recording: Recording) -> str:
    """The one list of numbers on a line that a tensor is made of there, as it is written; empty where there is none, or
    something else on the line may be what was copied."""
    file = recorded_source(recording, place.path)
    if file is None:
        return ""
    calls = [e for e in file.events_on(place.line) if isinstance(e.node, ast.Call)]
    made = [e for e in calls if file.dotted(e.call.func) in _MAKING and e.call.args]
    moves = [e for e in calls if terminal(e.node) in ("to", "cuda") or keyword(e.call, "device") is not None]
    # With two moves on a line the run does not say which of them copied.
    if len(made) != 1 or len(moves) != 1:
        return ""
    given = made[0].call.args[0]
    value = _constant(made[0].unit, given.id) if isinstance(given, ast.Name) else given
    return file.segment(given)[:60] if value is not None and _is_numbers(value) else ""


def _constant(unit: Unit, name: str) -> ast.expr | None:
    """What a variable holds that one statement outside of loops binds and that nothing changes; else None."""
    home = unit.home(name)
    bound = home.bindings.get(name, []) if home is not None else []
    node = bound[0].node if len(bound) == 1 and bound[0].loop is None else None
    return node.value if isinstance(node, ast.Assign) and not _changed(unit.file, name) else None


def _is_numbers(node: ast.expr) -> bool:
    """Whether it is a list of numbers that are written out, or a list of such."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return bool(node.elts) and all(_is_numbers(one) or _is_number(one) for one in node.elts)
    return False


def _is_number(node: ast.expr) -> bool:
    one = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(one, ast.Constant) and isinstance(one.value, (int, float))


def _changed(file: SourceFile, name: str) -> bool:
    """Whether something may change a list: a method of it, or an item that is put in."""
    return re.search(rf"\b{name}(\.\w+\(|\[[^\]]*\]\s*[-+*/]?=(?!=)|\s*\+=)", file.text) is not None
