"""AMP113: a scaler steps parameters that are half themselves."""

from __future__ import annotations

import ast

import msgspec

from torchvet.rules.kit import Edit, Effect, Finding, Iterator, RankRecording, Recording, Rule, SourceFile
from torchvet.rules.precision import _scaler_runs as runs
from torchvet.rules.precision import _scaling as scaling
from torchvet.rules.shared import half_precision
from torchvet.source.model import Event, edits, receiver, targets_of, terminal, walk

_CHAIN = {"to", "cuda", "cpu", "train", "eval", "half", "requires_grad_"}
_LOADERS = {"from_pretrained", "from_config", "from_single_file"}


class HalfParametersWithScaler(Rule):
    """A scaler steps parameters that are half themselves."""

    code = "AMP113"
    name = "half-parameters-with-scaler"
    summary = "A model is turned to half precision and trained through a gradient scaler"
    severity = "error"
    words = ("caler",)

    bad_raises = "Attempting to unscale FP16 gradients"
    needs_at_work = "a scaler"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Gradients in fp16 that a scaler refused."""
        for fault, severity in runs.refused(rank, "Attempting to unscale FP16"):
            yield runs.seen(
                self, rank, msgspec.structs.replace(fault, other=fault.place), f"scaler.{fault.method} refuses "
                "fp16 gradients: the parameters themselves are fp16", severity=severity,
                place=runs.suspected(self, recording, fault.place), role="refused",
                cause="the model was turned to half, or loaded so, and its optimizer steps through a scaler",
                advice="keep the parameters in fp32 and run the forward pass under `torch.autocast`",
            )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A model that is turned to half for good, and whose parameters an optimizer of the scaler is given."""
        if not file.mentions("half", "float16"):
            return
        stepped = [s for one in scaling.passes(file) for s in one.steps]
        if not stepped:
            return
        seen: set[int] = set()
        for event in file.calls("half", "to", *_LOADERS):
            model = self._halved(event)
            made = self._optimizer_of(file, event, model) if model else None
            if made is not None and any(self._trains(made, event, step) for step in stepped):
                seen.add(id(made))
                yield self._finding(file, event, model, made)
        for asked in file.calls("parameters"):
            made = self._given_half(file, asked)
            if made is not None and id(made) not in seen and any(self._trains(made, asked, step) for step in stepped):
                seen.add(id(made))
                yield self._finding(file, made, file.segment(receiver(asked.call) or asked.node), made)

    @staticmethod
    def _given_half(file: SourceFile, asked: Event) -> Event | None:
        """The optimizer whose parameters are those of a model that is half wherever it was made, functions of this file
        included."""
        on = receiver(asked.call)
        if on is None or not isinstance(asked.parent, ast.Call) or half_precision.of_module(on, asked) != "fp16":
            return None
        made = next((e for e in asked.unit.events if e.node is asked.parent), None)
        return made if made is not None and "optimizer" in file.roles.of(made.node, made.unit) else None

    @staticmethod
    def _halved(event: Event) -> str:
        """The name of what an event turns to half in every run; empty where it does not."""
        call, unit, name = event.call, event.unit, terminal(event.node)
        given = [*call.args, *(k.value for k in call.keywords if k.arg in ("dtype", "torch_dtype"))]
        if name in _LOADERS:
            given = given[len(call.args) :]
        if event.context.arms or (
            call.args if name == "half" else not any(scaling.dtype_of(g, unit) == "float16" for g in given)
        ):
            return ""
        node: ast.expr = call
        for outer in unit.calls.get("cuda", []) + unit.calls.get("to", []) + unit.calls.get("train", []):
            node = outer.call if receiver(outer.call) is node else node
        statement, on = event.statement, receiver(call)
        if isinstance(statement, ast.Assign) and statement.value is node:
            target = targets_of(statement)
            return ast.unparse(target[0]) if len(target) == 1 else ""
        if isinstance(statement, ast.Expr) and statement.value is node and on is not None:
            while isinstance(on, ast.Call) and terminal(on) in _CHAIN and receiver(on) is not None:
                on = receiver(on)
            return ast.unparse(on) if on is not None and unit.file.roles.is_a("module", on, unit) else ""
        return ""

    @staticmethod
    def _optimizer_of(file: SourceFile, event: Event, model: str) -> Event | None:
        """The optimizer that is given the model's parameters, where nothing turns the model back or makes it anew."""
        unit = event.unit
        back = [e for e in unit.calls.get("float", []) if ast.unparse(receiver(e.call) or e.node) == model]
        anew = [b for b in unit.events if b.index > event.index and b.statement is not event.statement
                and any(ast.unparse(t) == model for t in targets_of(b.node)
                        if not isinstance(t, (ast.Subscript, ast.Starred)))]  # fmt: skip
        keeps = [b for b in anew if not model_goes_on(b.node, model)]
        if back or keeps:
            return None
        for made in unit.events:
            given = made.node.args if isinstance(made.node, ast.Call) else []
            text = ast.unparse(given[0]) if given else ""
            own = text in (f"{model}.parameters()", f"list({model}.parameters())")
            if own and "optimizer" in file.roles.of(made.node, unit):
                return made
        return None

    @staticmethod
    def _trains(made: Event, event: Event, step: Effect) -> bool:
        """Whether a step is one of that optimizer, and comes after the model was turned to half."""
        name = scaling.bound_to(made)
        if not name or name.rpartition(".")[2] != step.subject.rpartition(".")[2]:
            return False
        return event.index < made.index or (step.at.unit is event.unit and event.index < step.at.index)

    def _finding(self, file: SourceFile, event: Event, model: str, made: Event) -> Finding:
        optimizer = scaling.bound_to(made)
        return self.suspect(
            file, event, f"{model} has fp16 parameters here, and the scaler refuses to unscale their gradients",
            cause=f"{optimizer} is given {model}.parameters() and is stepped through the scaler, which is made for "
            "fp32 parameters under autocast",
            advice=f"leave {model} in fp32; autocast does the forward pass in half", safe=True,
            edits=self._edits(file, event),
            related=[self.also(file, "optimizer", made, file.segment(made.node))],
        )  # fmt: skip

    @staticmethod
    def _edits(file: SourceFile, event: Event) -> list[Edit]:
        call, on = event.call, receiver(event.call)
        name = next((k.arg for k in call.keywords if k.arg in ("dtype", "torch_dtype")), None)
        if terminal(call) in _LOADERS and name is not None:
            return edits.without_argument(file, call, name)
        if terminal(call) != "half" or on is None:
            return []
        if isinstance(event.parent, ast.Expr):
            return scaling.without(file, event)
        return [_bare(file, event, on), *(_bare(file, e, given) for e, given in _made_half_for_models(file))]


def _bare(file: SourceFile, event: Event, on: ast.expr) -> Edit:
    """`x` for `x.half()`."""
    return Edit(path=file.path, start=edits.end_of(file, on), end=edits.end_of(file, event.call), text="")


def _made_half_for_models(file: SourceFile) -> Iterator[tuple[Event, ast.expr]]:
    """The calls of `half` on what a model is given: one in fp32 would refuse it."""
    for event in file.calls("half"):
        on, call = receiver(event.call), event.parent
        if on is None or event.call.args or not isinstance(call, ast.Call) or event.node not in call.args:
            continue
        if file.roles.is_a("module", call.func, event.unit):
            yield event, on


def model_goes_on(node: ast.AST, model: str) -> bool:
    """Whether a binding gives a model's name to a wrapper of the same model: `model = DDP(model)`."""
    value = getattr(node, "value", None)
    return value is not None and any(
        ast.unparse(n) == model for n in walk(value) if isinstance(n, (ast.Name, ast.Attribute))
    )
