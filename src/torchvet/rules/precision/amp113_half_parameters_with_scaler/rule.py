"""AMP113: a scaler steps parameters that are half themselves."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Effect, Finding, Iterator, Recording, SourceFile, records
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.precision._scaler_runs import Report, ScalerRule
from torchvet.rules.precision.fixes.moves import taken_out
from torchvet.rules.shared import autocast_regions, half_precision
from torchvet.source.model import Event, Unit, edits, receiver, targets_of, terminal, under_methods, walk

_CHAIN = ("to", "cuda", "cpu", "train", "eval", "half", "requires_grad_")
_LOADERS = ("from_pretrained", "from_config", "from_single_file")
_DTYPE = ("dtype", "torch_dtype")


class HalfParametersWithScaler(ScalerRule):
    """A model is turned to half precision and trained through a gradient scaler."""

    severity = "error"
    words = ("caler",)
    refusals = ("Attempting to unscale FP16",)
    bad_raises = "Attempting to unscale FP16 gradients"

    def of_refusal(self, fault: records.scaling.ScalingFault, recording: Recording) -> Report:
        """Gradients in fp16 that a scaler refused."""
        return Report(
            f"scaler.{fault.method} refuses fp16 gradients: the parameters themselves are fp16",
            cause="the model was turned to half, or loaded so, and its optimizer steps through a scaler",
            advice="keep the parameters in fp32 and run the forward pass under `torch.autocast`",
            role="",
            place=self.suspected(recording, fault.place),
        )

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A model that is turned to half for good, and whose parameters an optimizer of the scaler is given."""
        stepped = scaling.scaler_steps(file) if file.mentions("half", "float16") else []
        if not stepped:
            return
        seen: set[int] = set()
        for event in file.calls("half", "to", *_LOADERS):
            model = _halved(event)
            made = _optimizer_of(event, model) if model else None
            if made is not None and any(_trains(made, event, step) for step in stepped):
                seen.add(id(made))
                yield self._finding(file, event, model, made)
        for asked in file.calls("parameters"):
            made = _given_half(asked)
            if made is not None and id(made) not in seen and any(_trains(made, asked, step) for step in stepped):
                seen.add(id(made))
                yield self._finding(file, made, file.segment(receiver(asked.call) or asked.node), made)

    def _finding(self, file: SourceFile, event: Event, model: str, made: Event) -> Finding:
        optimizer = scaling.bound_to(made)
        return self.suspect_at(
            event,
            f"{model} has fp16 parameters here, and the scaler refuses to unscale their gradients",
            cause=f"{optimizer} is given {model}.parameters() and is stepped through the scaler, which is made for "
            "fp32 parameters under autocast",
            advice=f"leave {model} in fp32; autocast does the forward pass in half",
            safe=True,
            edits=_left_full(file, event),
            related={"optimizer": made},
        )


def _given_half(asked: Event) -> Event | None:
    """The optimizer whose parameters are those of a model that is half wherever it was made, functions of this file
    included."""
    on = receiver(asked.call)
    if on is None or not isinstance(asked.parent, ast.Call) or half_precision.of_module(on, asked) != "fp16":
        return None
    made = next((e for e in asked.unit.events if e.node is asked.parent), None)
    return made if made is not None and _is_optimizer(made) else None


def _is_optimizer(event: Event) -> bool:
    return "optimizer" in event.unit.file.roles.of(event.node, event.unit)


def _halved(event: Event) -> str:
    """The name of what an event turns to half in every run; empty where it does not."""
    call, unit, node = event.call, event.unit, event.call
    # Under a condition, half and the scaler may be two ways of which a run takes one.
    if event.context.arms or not _to_half(call, unit):
        return ""
    for outer in (e for name in ("cuda", "to", "train") for e in unit.calls.get(name, ())):
        node = outer.call if receiver(outer.call) is node else node
    statement = event.statement
    if getattr(statement, "value", None) is not node:
        return ""
    if isinstance(statement, ast.Assign):
        target = targets_of(statement)
        return ast.unparse(target[0]) if len(target) == 1 else ""
    on = under_methods(receiver(call), _CHAIN) if isinstance(statement, ast.Expr) else None
    return ast.unparse(on) if on is not None and unit.file.roles.is_a("module", on, unit) else ""


def _to_half(call: ast.Call, unit: Unit) -> bool:
    """Whether a call asks for fp16: `half()`, or the dtype among its arguments, a loader's among its keywords."""
    if terminal(call) == "half":
        return not call.args
    keywords = [k.value for k in call.keywords if k.arg in _DTYPE]
    given = keywords if terminal(call) in _LOADERS else [*call.args, *keywords]
    return any(_is_fp16(g, unit) for g in given)


def _is_fp16(node: ast.expr, unit: Unit) -> bool:
    """Whether an expression is fp16's dtype, itself or by a name that is bound to it alone."""
    file = unit.file
    if autocast_regions.DTYPES.get(file.dotted(node)) or not isinstance(node, (ast.Name, ast.Attribute)):
        return autocast_regions.DTYPES.get(file.dotted(node)) == "fp16"
    return {autocast_regions.DTYPES.get(file.dotted(v)) for v, _ in file.roles.values(node, unit)} == {"fp16"}


def _optimizer_of(event: Event, model: str) -> Event | None:
    """The optimizer that is given the model's parameters, where nothing turns the model back or makes it anew."""
    unit = event.unit
    if any(ast.unparse(receiver(e.call) or e.node) == model for e in unit.calls.get("float", ())):
        return None
    later = [b for b in unit.events if b.index > event.index and b.statement is not event.statement]
    if any(_is_replaced_by(b.node, model) for b in later):
        return None
    given = (f"{model}.parameters()", f"list({model}.parameters())")
    calls = (e for e in unit.events if isinstance(e.node, ast.Call) and e.node.args)
    return next((e for e in calls if ast.unparse(e.call.args[0]) in given and _is_optimizer(e)), None)


def _is_replaced_by(node: ast.AST, model: str) -> bool:
    """Whether a statement gives a name or attribute another value than a wrapper of what it was, as DDP is."""
    targets = (t for t in targets_of(node) if not isinstance(t, (ast.Subscript, ast.Starred)))
    value = getattr(node, "value", None)
    parts = (n for n in walk(value) if isinstance(n, (ast.Name, ast.Attribute))) if value is not None else ()
    return any(ast.unparse(t) == model for t in targets) and not any(ast.unparse(n) == model for n in parts)


def _trains(made: Event, event: Event, step: Effect) -> bool:
    """Whether a step is one of that optimizer, and comes after the model was turned to half."""
    name = scaling.bound_to(made)
    if not name or name.rpartition(".")[2] != step.subject.rpartition(".")[2]:
        return False
    return event.index < made.index or (step.at.unit is event.unit and event.index < step.at.index)


def _left_full(file: SourceFile, event: Event) -> list[Edit]:
    """The model as it was made, and what it is given likewise: one in fp32 would refuse half inputs."""
    call = event.call
    name = next((k.arg for k in call.keywords if k.arg in _DTYPE), None)
    if terminal(call) in _LOADERS and name is not None:
        return edits.without_argument(file, call, name)
    if terminal(call) != "half" or receiver(call) is None:
        return []
    if isinstance(event.parent, ast.Expr):
        return taken_out(file, event)
    halves = [call, *(e.call for e in file.calls("half") if _is_given(e))]
    places = [(edits.end_of(file, receiver(half) or half), edits.end_of(file, half)) for half in halves]
    return [Edit(path=file.path, start=start, end=end, text="") for start, end in places]


def _is_given(half: Event) -> bool:
    """Whether a module is called on what a call of `half` gives."""
    call = half.parent
    if receiver(half.call) is None or half.call.args or not isinstance(call, ast.Call) or half.node not in call.args:
        return False
    return half.unit.file.roles.is_a("module", call.func, half.unit)
