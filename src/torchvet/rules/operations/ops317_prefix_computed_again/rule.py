"""OPS317: a model computes all earlier tokens again for each new one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.formatting import percent
from torchvet.recording.records.base import Place, Source
from torchvet.recording.records.timing import PrefixComputedAgain as Prefix
from torchvet.rules.kit import Edits, Finding, Iterator, RankRecording, Related, SourceFile
from torchvet.rules.operations._model_calls import prefixes_of
from torchvet.rules.operations.fixes.caches import CACHE, left_on
from torchvet.rules.shared.line_costs import Cost, LineCostRule

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Timing
    from torchvet.recording.records.timing import LineTime

_CALLERS, _LINES = 2, 4


class PrefixComputedAgain(LineCostRule):
    """A model computes all earlier tokens again for each new one."""

    severity = "warning"
    silence_clears = False

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The model's cache left on, where one line turns it off."""
        return left_on(file, finding)

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Lines that call a model with longer and longer inputs, whose earlier columns come out as before."""
        for told in prefixes_of(rank, timing):
            yield self._again(rank, told.seen, told.cost, max(told.parts, key=lambda part: part.seconds))

    def _again(self, rank: RankRecording, seen: Prefix, cost: Cost, most: LineTime) -> Finding:
        """`most` is what was seen most of the line, with the lines that had called it."""
        return self.observed(
            rank,
            seen.place,
            f"`{seen.module}` computes all earlier columns again for each new one, in up to {seen.row} calls in a row: "
            f"a cache would save {cost.of_step()}",
            cause=f"in {seen.steps} of {seen.sampled} sampled steps calls were given all that the call before was "
            f"given, and little more: {percent(seen.again / seen.columns)} of their columns had been computed, with "
            f"the same results in {seen.same} of {seen.compared} calls that were compared; "
            f"{percent(seen.saved / seen.seconds)} of the time of these calls grows with such columns; with a cache "
            f"{cost.left()}",
            advice="keep what later columns need of earlier ones (keys and values of attention, the state of a "
            "recurrent layer), and give the model the new columns alone: `past_key_values` with `use_cache=True` in "
            "transformers, whose `generate` does so unless the config, an argument or gradient checkpointing turns "
            "`use_cache` off",
            severity=cost.severity(),
            measured=cost.measured(),
            related=[*self._turned_off(rank), *self._callers(seen, most)],
        )

    def _turned_off(self, rank: RankRecording) -> Iterator[Related]:
        """Lines of the program after which a model keeps no cache, as their names say."""
        for source in rank.all(Source):
            lines = source.text.splitlines()
            for line in turned_off(source.text)[:_LINES]:
                place = Place(source.path, line, "")
                yield self.beside("turned-off", f"`{lines[line - 1].strip()}` turns a cache off", place)

    def _callers(self, seen: Prefix, most: LineTime) -> Iterator[Related]:
        """How the program came to the line."""
        way = [most.place, *most.callers]
        own = [n for n, one in enumerate(way) if (one.path, one.line) == (seen.place.path, seen.place.line)]
        for caller in way[own[-1] + 1 :][:_CALLERS] if own else ():
            yield self.beside("caller", f"`{caller.function}` calls it", caller)


def turned_off(text: str) -> list[int]:
    """The lines of a file that set `use_cache` to False: of an object, of a class, or where a configuration or a model
    is made. A call of a model may well go without."""
    if "use_" not in text:
        return []
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    return sorted({line for node in nodes for line in _sets(node)})


def _sets(node: ast.AST) -> Iterator[int]:
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and _is_false(node.value):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [getattr(target, "attr", getattr(target, "id", "")) for target in targets]
        yield from (node.lineno for name in names if CACHE.fullmatch(name))
    elif isinstance(node, ast.Call):
        called = ast.unparse(node.func).rpartition(".")[2]
        if called[:1].isupper() or called.startswith("from_"):
            off = (one for one in node.keywords if CACHE.fullmatch(one.arg or "") and _is_false(one.value))
            yield from (one.value.lineno for one in off)


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
