"""AMP207: autocast is opened for a device that the tensors are not on."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from torchvet.recording.records.autocast import AutocastError, AutocastRegion
from torchvet.rules.kit import About, Edit, Finding, RankRecording, Recording, Rule, SourceFile, about, events_at
from torchvet.rules.precision._observed import totals
from torchvet.rules.shared import autocast_regions
from torchvet.source.model import Event, Unit, edits, receiver, terminal

_ELSEWHERE = (".to(", ".cuda(", "device=", "set_default_device", "set_default_tensor_type", "with torch.device",
              "accelerat", "lightning", "fabric", "deepspeed", ".prepare(", "ignite", "fastai", "DataParallel",
              "load(", "to_device", "device_map")  # fmt: skip
"""What in a file may put a model on another device than the CPU."""
_DEEPEST = 3
"""Calls that a module is followed through to where it is made."""


class WrongDeviceType(Rule):
    """Autocast is opened for a device that the tensors are not on."""

    code = "AMP207"
    name = "wrong-device-type"
    summary = "Autocast is opened for a device that the tensors are not on"
    severity = "warning"
    words = ("autocast",)

    fix_changes_results = True

    def could_be_measured(self, recording: Recording) -> bool:
        """Needed: products within a region of which one knows whose device they ran on."""
        seen = [r for rank in recording.ranks for r in rank.all(AutocastRegion)]
        return super().could_be_measured(recording) and any(r.inside or r.elsewhere for r in seen)

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The device type that the run has seen, in the place of the one that is written."""
        seen = about(finding).operands
        for event in events_at(file, finding) if seen else ():
            call = event.node if isinstance(event.node, ast.Call) else None
            given = autocast_regions.arguments(file, call).get("device_type") if call is not None else None
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                return [edits.replace(file, given, f'"{seen[0]}"')]
        return ()

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Regions in which every matrix product ran on another device type."""
        for seen in totals(rank, AutocastRegion, "place", "device", "dtype"):
            if seen.wanted and seen.elsewhere and not seen.inside:
                yield self._nothing_cast(rank, seen, self._is_known(recording, seen))
        for error in totals(rank, AutocastError, "kind", "place"):
            if error.kind == "device":
                yield self.observed(
                    rank, severity="error", place=error.place,
                    message=f"autocast was given a torch.device: {error.message}",
                    cause='`device_type` has to be a string such as "cuda"', advice="write `device.type`",
                )  # fmt: skip

    def _is_known(self, recording: Recording, seen: AutocastRegion) -> bool:
        """Whether the region can never be right: its device is there, or the text says that the model is elsewhere, or
        no file of the program moves anything. A program that was written for another machine is run on this one as it
        is."""
        from torchvet.source.model import SourceFile

        if seen.enabled:
            return True
        text = recording.sources.get(seen.place.path)
        try:
            file = SourceFile(seen.place.path, text) if text is not None else None
        except (SyntaxError, ValueError):
            return False
        if file is None:
            return False
        if any(f.location and f.location.line == seen.place.line for f in self.in_source(file)):
            return True
        line = "".join(file.lines[seen.place.line - 1 : seen.place.line])
        named = f'"{seen.device}"' in line or f"'{seen.device}'" in line or f"{seen.device}.amp" in line
        return named and not any(word in text for text in recording.sources.values() for word in _ELSEWHERE)

    def _nothing_cast(self, rank: RankRecording, seen: AutocastRegion, known: bool) -> Finding:
        why = "" if seen.enabled else f", and torch has switched it off: no {seen.device} device is here"
        return self.observed(
            rank, severity="warning" if known else "info", place=seen.place,
            message=f"autocast for {seen.device} casts nothing: all {seen.elsewhere:,} matrix products looked at ran "
            f"on {seen.other}{why}",
            cause="a region casts the operators of its own device type only",
            advice=f'open it with `torch.autocast("{seen.other}")`, or with `device.type`',
            about=About(operands=(seen.other,)),
        )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A region given a `torch.device`, or one for another device than a module called in it is on."""
        for event in file.calls("autocast"):
            yield from self._not_a_string(file, event)
        for region, at, _ in autocast_regions.opened(file):
            if region.enabled == "yes" and region.device and region.call is not None:
                yield from self._elsewhere(file, region, at)

    def _not_a_string(self, file: SourceFile, event: Event) -> Iterator[Finding]:
        given = autocast_regions.arguments(file, event.call).get("device_type")
        if given is None or not self._is_device(file, given, event.unit):
            return
        name = file.segment(given)
        yield self.suspect(
            file, event, f"{name} is a torch.device; autocast wants its type as a string and raises", severity="error",
            cause="`device_type` has to be a string such as \"cuda\"", advice=f"write `{name}.type`", safe=True,
            edits=[edits.replace(file, given, f"{name}.type")],
        )  # fmt: skip

    @staticmethod
    def _is_device(file: SourceFile, node: ast.expr, unit: Unit) -> bool:
        if isinstance(node, ast.Call):
            return file.dotted(node.func) == "torch.device"
        if isinstance(node, ast.Name) and ((home := unit.home(node.id)) is None or node.id in home.parameters):
            return False
        values = file.roles.values(node, unit)
        return bool(values) and all(
            isinstance(v, ast.Call) and file.dotted(v.func) == "torch.device" for v, _ in values
        )

    def _elsewhere(self, file: SourceFile, region: autocast_regions.Region, at: Event) -> Iterator[Finding]:
        for event in autocast_regions.inside(at.unit, region):
            if not autocast_regions.is_module_call(event) or autocast_regions.state(event) != region:
                continue
            where = self._device_of(file, event.call.func, event.unit)
            if where and where != {region.device} and region.device not in where:
                yield self._finding(file, region, at, event, " or ".join(sorted(where)))
                return

    def _device_of(self, file: SourceFile, model: ast.expr, unit: Unit, depth: int = 0) -> set[str]:
        """The devices that a module is moved to; `cpu` for one that is made here and never moved."""
        found: set[str] = set()
        moves = [(v, where) for v, where in file.roles.values(model, unit)]
        made = bool(moves)
        for event in file.calls("to", "cuda", "cpu"):
            on = receiver(event.call)
            if isinstance(on, (ast.Name, ast.Attribute)) and ast.unparse(on) == ast.unparse(model):
                moves.append((event.call, event.unit))
        for value, where in moves:
            moved = self._moved_to(file, value, where)
            if moved is None:
                return set()
            found |= moved
        home = unit.home(model.id) if isinstance(model, ast.Name) else None
        if not moves and home is not None and isinstance(model, ast.Name) and model.id in home.parameters:
            return self._device_passed(file, model.id, home, depth)
        if found or not made or file.mentions(*_ELSEWHERE):
            return found
        return {"cpu"} if all(self._made_here(file, v, where) for v, where in moves) else set()

    def _device_passed(self, file: SourceFile, name: str, unit: Unit, depth: int) -> set[str]:
        """The devices that callers of this file have moved what they pass for a parameter to; empty where one of them
        is not known."""
        passed = list(file.arguments(unit, name))
        if depth >= _DEEPEST or len(passed) != len(file.callers(unit)):
            return set()
        each = [self._device_of(file, value, where, depth + 1) for value, where in passed]
        return set().union(*each) if all(each) else set()

    @staticmethod
    def _moved_to(file: SourceFile, value: ast.expr, unit: Unit) -> set[str] | None:
        """Where calls on a value move it; empty where none does, None where that is not known."""
        while isinstance(value, ast.Call):
            name, on = terminal(value), receiver(value)
            if name == "cuda" and on is not None:
                return {"cuda"}
            if name == "to" and on is not None:
                given = next(
                    (k.value for k in value.keywords if k.arg == "device"), value.args[0] if value.args else None
                )
                known = autocast_regions.devices(file, given, unit)
                return known or None
            if name in ("train", "eval", "float", "half", "requires_grad_", "bfloat16") and on is not None:
                value = on
            elif name in ("compile", "DataParallel", "DistributedDataParallel", "DDP", "prepare", "setup"):
                return None
            else:
                return set()
        return None

    @staticmethod
    def _made_here(file: SourceFile, value: ast.expr, unit: Unit) -> bool:
        if not isinstance(value, ast.Call):
            return False
        known = file.roles.class_named(value.func, unit)
        return (known is not None or file.dotted(value.func).startswith("torch.nn.")) and "module" in file.roles.of(
            value, unit
        )

    def _finding(
        self, file: SourceFile, region: autocast_regions.Region, at: Event, call: Event, where: str
    ) -> Finding:
        model = file.segment(call.call.func)
        kind = file.dotted(region.call.func).rpartition(".")[0] if region.call is not None else ""
        advice = f'open it with `torch.autocast("{where}")`' + (
            " instead of `torch.cuda.amp`" if "cuda.amp" in kind else ""
        )
        return self.suspect(
            file, at, f"autocast for {region.device} does nothing: {model} is on {where}", node=region.node,
            cause="a region casts the operators of its own device type only", advice=advice,
            related=[self.also(file, "called", call, file.segment(call.node))],
        )  # fmt: skip
