"""TRN110: a state dict is kept without a copy, so that it follows the live weights."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.shared import seen_suspicions, training_loops
from torchvet.source.model import Event, Unit, edits, is_attribute, is_call, origins, steps, targets_of, value_for
from torchvet.source.syntax import given, receiver, terminal
from torchvet.source.walking import Loop

_CAUSE = "state_dict() refers to the parameters' own memory, which the optimizer goes on changing in place"
_AGAIN = 3
"""Loads of a model's own weights from which on it is no trial."""
_BOUND = re.compile(r"= *[({\[\w][^=\n]*\.state_dict\(\)")
"""A cheap look at the text: whether a state dict is bound to anything, alone or as a part."""


class StateDictAliased(training_loops.LoopRule):
    """A state dict is kept without a copy, so that it follows the live weights."""

    severity = "error"
    words = (".state_dict()",)
    fix_changes_results = True

    silence_clears = False  # what comes after the steps that were run may show it yet

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """Weights that were to be brought back and are the live ones: where source shows what was kept, or the run
        which dict was taken before the weights had changed."""
        for record in rank.latest(records.training.OwnWeights):
            seen = f": load_state_dict was given the model's own {record.parameters} parameters"
            measured = kit.Measured(steps=record.calls)
            found = [
                *seen_suspicions.confirmed(
                    self, recording, rank, record.place, seen=seen, measured=measured, role="read"
                )
            ]
            yield from found
            if not found and record.taken is not None:
                yield self._given_back(rank, record, record.taken)
            elif not found and record.calls >= _AGAIN:
                yield self._of_itself(rank, record)

    def _of_itself(self, rank: kit.RankRecording, record: records.training.OwnWeights) -> kit.Finding:
        message = (
            f"load_state_dict was given {record.model}'s own {record.parameters} parameters {record.calls:,} times: it "
            "changed nothing"
        )
        advice = "load the state dict of the model that it is to follow, or a copy that was kept before"
        cause = "the state dict holds the very tensors that it is loaded into"
        measured = kit.Measured(steps=record.calls)
        return self.observed(
            rank, record.place, message, cause=cause, advice=advice, severity="warning", measured=measured
        )

    def _given_back(
        self, rank: kit.RankRecording, record: records.training.OwnWeights, taken: kit.Place
    ) -> kit.Finding:
        message = (
            f"what state_dict() gave here is no copy: {record.changed:,} steps later load_state_dict was given "
            f"{record.model}'s own {record.parameters} parameters, and nothing came back"
        )
        advice = "keep a copy: `copy.deepcopy(…)` of what it gives"
        measured = kit.Measured(steps=record.calls)
        related = [kit.Related(role="read", message="load_state_dict", path=record.place.path, line=record.place.line)]
        return self.observed(rank, taken, message, cause=_CAUSE, advice=advice, measured=measured, related=related)

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """A copy in the place of the dict, where one call on the line takes it and it is bound as it is."""
        calls = [e for e, _ in kit.calls_at(file, finding, "state_dict")]
        bound = len(calls) == 1 and isinstance(calls[0].parent, (ast.Assign, ast.AnnAssign, ast.Dict, ast.Return))
        return [edits.replace(file, calls[0].call, _cloned(file.segment(calls[0].node)))] if bound else ()

    def in_file(self, file: kit.SourceFile) -> kit.Findings:
        """A live state dict that is kept while the model trains on and read as if it were a snapshot."""
        if not _BOUND.search(file.text) or file.mentions("FSDP", "FullySharded"):
            return
        for taken in file.calls("state_dict"):
            call, model = taken.call, receiver(taken.call)
            if given(call) or model is None or not self._is_module(file, model, taken):
                continue
            name = _kept_as(taken)
            used = self._read_later(file, taken, name, model) if name else None
            if used is not None:
                yield self._finding(file, taken, name, used)

    @staticmethod
    def _is_module(file: kit.SourceFile, model: ast.expr, taken: Event) -> bool:
        return file.roles.is_a("module", model, taken.unit) and "optimizer" not in file.roles.of(model, taken.unit)

    def _read_later(self, file: kit.SourceFile, taken: Event, name: str, model: ast.expr) -> Event | None:
        """Where it is loaded, saved or returned after the model has trained on."""
        unit = taken.unit
        root = name.partition("[")[0]
        bound = unit.bindings.get(root, ())
        if root.count(".") or any(e.node.__class__ is ast.AugAssign for e in bound):
            return self._read_in_class(file, taken, name) if root.count(".") == 1 else None
        if not all(_may_be_kept_beside(e, root) for e in bound if e.statement is not taken.statement):
            return None
        uses = (e for e in _readers(file, unit, name) if e.index > taken.index and not e.excludes(taken))
        trained = (use for use in uses if self._trains(file, unit, _between(taken, use)))
        return next((use for use in trained if self._same_or_best(taken, use, model)), None)

    @staticmethod
    def _read_in_class(file: kit.SourceFile, taken: Event, name: str) -> Event | None:
        """`self.best = model.state_dict()` under a condition, loaded or saved in the class: kept on purpose."""
        owner = taken.unit.method_class()
        own, _, rest = name.partition(".")
        attribute, bracket, place = rest.partition("[")
        if owner is None or own != taken.unit.self_name():
            return None
        bound = owner.attributes.get(attribute, [])
        others = [(e, f"{e.unit.self_name()}.{attribute}") for e, _ in bound if e.statement is not taken.statement]
        if not all(_may_be_kept_beside(e, text) for e, text in others):
            return None
        if not (taken.context.arms or re.search(r"best|initial|snapshot|backup", attribute)) or not file.steps:
            return None
        for method in owner.methods.values():
            for use in _readers(file, method, f"{method.self_name()}.{attribute}{bracket}{place}"):
                same = use.unit is taken.unit and use.context.arms == taken.context.arms
                if terminal(use.node) == "load_state_dict" and not same:
                    return use
        return None

    @staticmethod
    def _trains(file: kit.SourceFile, unit: Unit, when: Callable[[Event], bool]) -> bool:
        """Whether an optimizer steps, or something that is given the optimizer trains, at an event for which `when`."""
        if any(e.is_step and when(e.at) for e in file.effects(unit)):
            return True
        named = (e for name, calls in unit.calls.items() if "train" in name.lower() for e in calls)
        return any(when(e) and any(file.roles.is_a("optimizer", g, unit) for g in given(e.call)) for e in named)

    @staticmethod
    def _same_or_best(taken: Event, use: Event, model: ast.expr) -> bool:
        """Taken under a condition, it is a snapshot; else it must go back into the model that it came from."""
        if any(isinstance(branch, ast.If) for branch, _ in taken.context.arms):
            return True
        on = receiver(use.call) if isinstance(use.node, ast.Call) else None
        if terminal(use.node) != "load_state_dict" or on is None:
            return False
        return bool(origins.identity(on, use.unit) & origins.identity(model, taken.unit))

    def _finding(self, file: kit.SourceFile, taken: Event, name: str, used: Event) -> kit.Finding:
        text = file.segment(taken.node)
        alone = isinstance(taken.parent, (ast.Assign, ast.AnnAssign))
        message = f"{name} follows the live weights: {text} is not a copy"
        advice = f"keep a copy: `copy.deepcopy({text})`"
        change = [edits.replace(file, taken.call, _cloned(text))] if alone else ()
        related = [self.also(file, "read", used)]
        return self.suspect(file, taken, message, cause=_CAUSE, advice=advice, edits=change, related=related)


def _cloned(text: str) -> str:
    return f"{{name: value.clone() for name, value in {text}.items()}}"


def _kept_as(taken: Event) -> str:
    """The name, `self` attribute or place in one that the dict itself is bound to: `best`, `self.best`, `best[1]` of a
    tuple; `.copy()` of it is no deep copy."""
    statement = taken.statement
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return ""
    for target in targets_of(statement):
        place = _place_in(value_for(statement, target), taken.node)
        if place is not None and _is_place(target):
            return ast.unparse(target) + place
    return ""


def _is_place(target: ast.expr) -> bool:
    """A name, an attribute of one, or what stands under a constant key of these."""
    if isinstance(target, ast.Subscript):
        target = target.value if isinstance(target.slice, ast.Constant) else target
    return isinstance(target, (ast.Name, ast.Attribute))


def _place_in(value: ast.AST | None, wanted: ast.AST) -> str | None:
    """Where a call stands in a value: empty for the value itself, `[1]` or `['model']` for an element of a literal;
    None where it does not stand there as it is."""
    if value is wanted:
        return ""
    if is_call(value, "copy", "OrderedDict", "dict"):
        on = receiver(value)
        inner = value.args[0] if len(value.args) == 1 else on if on is not None and not value.args else None
        return _place_in(inner, wanted)
    if isinstance(value, (ast.Tuple, ast.List)):
        return next((f"[{n}]" for n, one in enumerate(value.elts) if _place_in(one, wanted) == ""), None)
    if isinstance(value, ast.Dict):
        for key, one in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and _place_in(one, wanted) == "":
                return f"[{key.value!r}]"
    return None


def _between(taken: Event, use: Event) -> Callable[[Event], bool]:
    """Whether an event may run after the dict was taken and before it is read."""
    # The innermost loop around both: within one of its turns their order is that of the text.
    shared = taken.loop
    while shared is not None and not use.inside(shared):
        shared = shared.parent
    mine, yours = _outermost(taken, shared), _outermost(use, shared)

    def lies_between(event: Event) -> bool:
        if taken.index < event.index < use.index:
            return True
        # A loop around only one of the two goes round in between.
        return event.loop is not None and any(one is not None and event.loop.within(one) for one in (mine, yours))

    return lies_between


def _outermost(event: Event, shared: Loop | None) -> Loop | None:
    """The outermost loop around an event that lies within a loop; None where it stands in that one itself."""
    loop = event.loop if event.loop is not shared else None
    while loop is not None and loop.parent is not shared:
        loop = loop.parent
    return loop


def _may_be_kept_beside(binding: Event, name: str) -> bool:
    """Whether a binding starts the name with what holds no weights, or keeps another state dict under it."""
    target = next((t for t in targets_of(binding.node) if ast.unparse(t) == name), None)
    value = value_for(binding.node, target) if target is not None else None
    return _holds_nothing(value) or is_call(value, "state_dict")


def _holds_nothing(value: ast.AST | None) -> bool:
    """Whether it is None, a number, or an empty container or one of such."""
    if isinstance(value, (ast.Tuple, ast.List)):
        return all(map(_holds_nothing, value.elts))
    if isinstance(value, ast.Dict):
        return all(map(_holds_nothing, value.values))
    if is_call(value, "float"):
        return True
    number = value.operand if isinstance(value, ast.UnaryOp) else value
    return isinstance(number, ast.Constant) or is_attribute(number, "inf", "maxsize")


def _readers(file: kit.SourceFile, unit: Unit, name: str) -> Iterator[Event]:
    """Calls that load or save the dict, and returns of it."""
    for event in unit.events:
        if isinstance(event.node, ast.Return):
            if steps.text_of(event.node.value) == name:
                yield event
        elif event.node.__class__ is ast.Call:
            saves = file.dotted(event.call.func) == "torch.save"
            reads = saves or terminal(event.node) == "load_state_dict"
            if reads and any(_is_name(one, name) for one in event.call.args[:1]):
                yield event


def _is_name(node: ast.expr, name: str) -> bool:
    """Whether what is loaded or saved is the dict, or what it stands in."""
    if isinstance(node, ast.Dict):
        return any(_is_name(v, name) for v in node.values)
    if isinstance(node, ast.Subscript):
        return ast.unparse(node) == name
    return isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) in (name, name.partition("[")[0])
