"""AMP207: autocast is opened for a device that the tensors are not on."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from torchvet.rules.kit import Edit, Finding, RankRecording, Recording, SourceFile, about, events_at, records
from torchvet.rules.precision._autocast_rule import AutocastRule
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source.model import Event, Unit, edits, is_call, keyword, receiver, terminal, under_methods

_ELSEWHERE = (
    *(".to(", ".cuda(", "device=", "set_default_device", "set_default_tensor_type", "with torch.device"),
    *("accelerat", "lightning", "fabric", "deepspeed", ".prepare(", "ignite", "fastai", "DataParallel"),
    *("load(", "to_device", "device_map"),
)
"""What in a file may put a model on another device than the CPU."""
_KEEPS = ("train", "eval", "float", "half", "requires_grad_", "bfloat16")
_WRAPS = ("compile", "DataParallel", "DistributedDataParallel", "DDP", "prepare", "setup")
_DEEPEST = 3
"""Calls that a module is followed through to where it is made."""


class WrongDeviceType(AutocastRule):
    """Autocast is opened for a device that the tensors are not on."""

    severity = "warning"
    cause = "a region casts the operators of its own device type only"
    needs_at_work = None
    fix_changes_results = True

    def could_be_measured(self, recording: Recording) -> bool:
        """Needed: products within a region of which one knows whose device they ran on."""
        seen = [r for rank in recording.ranks for r in rank.all(records.autocast.AutocastRegion)]
        return super().could_be_measured(recording) and any(r.inside or r.elsewhere for r in seen)

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The device type that the run has seen, in the place of the one that is written."""
        seen = about(finding).operands
        calls = [e.call for e in events_at(file, finding) if isinstance(e.node, ast.Call)] if seen else []
        for given in (autocast.arguments(file, call).get("device_type") for call in calls):
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                return [edits.replace(file, given, f'"{seen[0]}"')]
        return ()

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Regions in which every matrix product ran on another device type."""
        for seen in rank.latest(records.autocast.AutocastRegion, "place", "device", "dtype"):
            if seen.wanted and seen.elsewhere and not seen.inside:
                yield self._nothing_cast(rank, seen, self._is_known(recording, seen))
        for error in rank.latest(records.autocast.AutocastError, "kind", "place"):
            if error.kind == "device":
                yield self.seen_at(
                    rank,
                    error.place,
                    f"autocast was given a torch.device: {error.message}",
                    cause='`device_type` has to be a string such as "cuda"',
                    advice="write `device.type`",
                    severity="error",
                )

    def _is_known(self, recording: Recording, seen: records.autocast.AutocastRegion) -> bool:
        """Whether the region can never be right: its device is there, or the text says that the model is elsewhere, or
        no file of the program moves anything. A program that was written for another machine is run on this one as it
        is."""
        # A region for CUDA is off on a machine without it, and such a run says nothing against the program.
        file = recording.model(seen.place.path)
        if seen.enabled or file is None:
            return seen.enabled
        if any(f.location and f.location.line == seen.place.line for f in self.in_source(file)):
            return True
        line = "".join(file.lines[seen.place.line - 1 : seen.place.line])
        named = any(word in line for word in (f'"{seen.device}"', f"'{seen.device}'", f"{seen.device}.amp"))
        return named and not any(word in text for text in recording.sources.values() for word in _ELSEWHERE)

    def _nothing_cast(self, rank: RankRecording, seen: records.autocast.AutocastRegion, known: bool) -> Finding:
        why = "" if seen.enabled else f", and torch has switched it off: no {seen.device} device is here"
        return self.seen_at(
            rank,
            seen.place,
            f"autocast for {seen.device} casts nothing: all {seen.elsewhere:,} matrix products looked at ran on "
            f"{seen.other}{why}",
            advice=f'open it with `torch.autocast("{seen.other}")`, or with `device.type`',
            severity="warning" if known else "info",
            operands=(seen.other,),
        )

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A region given a `torch.device`, or one for another device than a module called in it is on."""
        for event in file.calls("autocast"):
            given = autocast.arguments(file, event.call).get("device_type")
            if given is not None and _is_device(file, given, event.unit):
                yield self._not_a_string(file, event, given)
        for region, at, _ in autocast.opened(file):
            if region.enabled == "yes" and region.device and region.call is not None:
                yield from self._elsewhere(file, region, at)

    def _not_a_string(self, file: SourceFile, event: Event, given: ast.expr) -> Finding:
        name = file.segment(given)
        return self.suspect_at(
            event,
            f"{name} is a torch.device; autocast wants its type as a string and raises",
            severity="error",
            cause='`device_type` has to be a string such as "cuda"',
            advice=f"write `{name}.type`",
            edits=[edits.replace(file, given, f"{name}.type")],
        )

    def _elsewhere(self, file: SourceFile, region: autocast.Region, at: Event) -> Iterator[Finding]:
        for event in autocast.module_calls(at.unit, region):
            where = _device_of(file, event.call.func, event.unit) if autocast.state(event) == region else set()
            if where and region.device not in where:
                text = " or ".join(sorted(where))
                kind = file.dotted(region.call.func) if region.call is not None else ""
                instead = " instead of `torch.cuda.amp`" if "cuda.amp" in kind else ""
                yield self.suspect_at(
                    at,
                    f"autocast for {region.device} does nothing: {file.segment(event.call.func)} is on {text}",
                    node=region.node,
                    advice=f'open it with `torch.autocast("{text}")`{instead}',
                    related={"called": event},
                )
                return


def _is_device(file: SourceFile, node: ast.expr, unit: Unit) -> bool:
    """Whether an expression is a `torch.device`."""
    if isinstance(node, ast.Call):
        return file.dotted(node.func) == "torch.device"
    if isinstance(node, ast.Name) and ((home := unit.home(node.id)) is None or node.id in home.parameters):
        return False
    values = file.roles.values(node, unit)
    return bool(values) and all(isinstance(v, ast.Call) and file.dotted(v.func) == "torch.device" for v, _ in values)


def _device_of(file: SourceFile, model: ast.expr, unit: Unit, depth: int = 0) -> set[str]:
    """The devices that a module is moved to; `cpu` for one that is made here and never moved."""
    made = file.roles.values(model, unit)
    moves = [(e.call, e.unit) for e in file.calls("to", "cuda", "cpu") if _is_same(receiver(e.call), model)]
    if not made and not moves:
        return _device_passed(file, model, unit, depth)
    found = set[str]()
    for value, where in (*made, *moves):
        moved = _moved_to(file, value, where)
        if moved is None:
            return set()
        found |= moved
    # What is never moved is on the CPU, unless another file or a framework may move it.
    if found or not made or file.mentions(*_ELSEWHERE):
        return found
    return {"cpu"} if all(_is_made_here(file, value, where) for value, where in (*made, *moves)) else set()


def _is_same(node: ast.expr | None, model: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) == ast.unparse(model)


def _device_passed(file: SourceFile, node: ast.expr, unit: Unit, depth: int) -> set[str]:
    """The devices that callers of this file have moved what they pass for a parameter to; empty where one of them is
    not known, and for what is no parameter."""
    home = unit.home(node.id) if isinstance(node, ast.Name) else None
    if home is None or not isinstance(node, ast.Name) or node.id not in home.parameters or depth >= _DEEPEST:
        return set()
    passed = list(file.arguments(home, node.id))
    if len(passed) != len(file.callers(home)):
        return set()
    each = [_device_of(file, value, where, depth + 1) for value, where in passed]
    return set().union(*each) if all(each) else set()


def _moved_to(file: SourceFile, value: ast.expr, unit: Unit) -> set[str] | None:
    """Where calls on a value move it; empty where none does, None where that is not known."""
    node = under_methods(value, _KEEPS)
    if not isinstance(node, ast.Call) or is_call(node, *_WRAPS):
        return None
    method = receiver(node) is not None
    if method and terminal(node) == "to":
        given = keyword(node, "device") or next(iter(node.args), None)
        return autocast.devices(file, given, unit) or None
    return {"cuda"} if method and terminal(node) == "cuda" else set()


def _is_made_here(file: SourceFile, value: ast.expr, unit: Unit) -> bool:
    if not isinstance(value, ast.Call) or "module" not in file.roles.of(value, unit):
        return False
    return file.roles.class_named(value.func, unit) is not None or file.dotted(value.func).startswith("torch.nn.")
