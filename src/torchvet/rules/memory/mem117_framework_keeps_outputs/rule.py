"""MEM117: a framework's hooks gather the outputs of every batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchvet.formatting import count, size
from torchvet.rules import kit
from torchvet.rules.core import grading
from torchvet.rules.memory._stores import Stored, root_of, store
from torchvet.rules.memory.fixes.emptied_lists import emptied_after_use
from torchvet.rules.memory.fixes.framework_lists import left_out_of_evaluation
from torchvet.rules.shared import growth_rule, peaks, trainers, training_loops
from torchvet.source.model import ClassModel, Event, Unit, is_call, name_set, origins, targets_of, value_for
from torchvet.source.syntax import parts, receiver, terminal

_PER_BATCH = name_set(
    "training_step validation_step test_step predict_step on_train_batch_end on_validation_batch_end "
    "on_test_batch_end on_predict_batch_end"
)
_EMPTYING = {"clear", "pop", "popleft", "reset"}
_AS_LARGE = name_set(
    "detach cpu numpy clone softmax sigmoid log_softmax float half squeeze argmax exp to contiguous tolist"
)
_WIDE = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForSeq2SeqLM", "ForConditionalGeneration", "ForPreTraining")
"""Models whose logits have the width of a vocabulary."""


class FrameworkKeepsOutputs(growth_rule.GrowthRule):
    """The outputs of batch after batch pile up in a framework's hooks."""

    severity = "warning"
    words = ("LightningModule", "Callback", "compute_metrics")

    specificity = 1

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """An evaluation that keeps less of what the model returns; a list emptied by the one method that reads it."""
        return left_out_of_evaluation(file, finding) or emptied_after_use(file, finding)

    def recognises(self, growth: kit.Growth, recording: kit.Recording) -> bool:
        """Storages pile up, and the line that stores them stands in a framework's hook for each batch."""
        store = self.store(growth, recording) if growth.direct_per_step >= 0.5 * growth.bytes_per_step > 0 else None
        name = store.function.rpartition(".")[2] if store is not None else ""
        file = recording.model(store.path) if store is not None and name in _PER_BATCH else None
        owner = file.unit_at(store.line).owner if store is not None and file is not None else None
        return file is not None and owner is not None and bool(file.roles.of_class(owner) & {"lightning", "hooked"})

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """What hooks gather over the run, and what a framework's evaluation gathers until it ends."""
        yield from super().in_rank(rank, recording)
        from torchvet.analysis.growth import gathered
        from torchvet.analysis.steps import longest_evaluation

        batches = longest_evaluation(rank)
        for growth in gathered(rank):
            place = growth.holding.place
            # What the program's own loop gathers it may want.
            if place is not None and place.path not in recording.sources and _is_large(growth, batches):
                yield self._of_evaluation(growth, batches, rank, recording)

    def _of_evaluation(
        self, growth: kit.Growth, batches: int, rank: kit.RankRecording, recording: kit.Recording
    ) -> kit.Finding:
        name, held = growth.holding.name, _at_the_end(growth, batches)
        function = growth.holding.scope.rpartition(".")[2]
        peak = peaks.peak_of(rank)
        share = held / (held + peak)
        return self.observed(
            rank,
            severity=grading.of_waste(held, share),
            place=growth.holding.called_from or growth.holding.place,
            message=f"the evaluation gathers {size(growth.bytes_per_step)} of every batch in {name} of {function}(): "
            f"{size(held)} after {count(batches, 'batch', 'batches')}, until it ends",
            cause="what the model returns for each batch is kept for the whole evaluation set; a training step takes "
            f"{size(peak)}",
            advice="let the model return less in evaluation, or keep less of it: with transformers' `Trainer` "
            '`ignore_keys_for_eval=["hidden_states", "attentions"]` of `train()` or `evaluate()` leaves out outputs '
            "that the metrics do not use, `preprocess_logits_for_metrics` reduces them batch by batch, and "
            "`eval_accumulation_steps` moves them to the host",
            holder=growth_rule.holder_of(growth),
            measured=kit.Measured(bytes=held, peak_bytes=peak, share=share),
            related=[
                *self._of_maker(growth, recording),
                *(growth_rule.allocated(site) for site in growth.holding.sites[:3]),
            ],
        )

    def _of_maker(self, growth: kit.Growth, recording: kit.Recording) -> Iterator[kit.Related]:
        """The line that makes the Trainer, and the one that its metrics read what was gathered on: what is gathered
        is decided there."""
        made = trainers.made_in(recording) if growth.holding.scope.startswith("transformers.trainer") else None
        if made is None:
            return
        file, event = made
        yield self.also(file, "made", event, f"{terminal(event.node)}(…)")
        metrics = trainers.argument(event, "compute_metrics", _METRICS)
        named = file.functions(metrics.id) if isinstance(metrics, ast.Name) else []
        if len(named) == 1:
            line, name = _reads_first(named[0]), named[0].name
            yield kit.Related(role="metrics", message=f"{name}()", path=file.path, line=line)

    def cause(self, growth: kit.Growth, store: kit.Store | None) -> str:
        """Which hook gathers them."""
        hook = store.function.rpartition(".")[2] if store is not None else "a hook"
        return f"{hook} adds an output of every batch to {growth.holding.name}, which lives as long as the training"

    def advice(self, growth: kit.Growth, store: kit.Store | None) -> str:
        """Empty it where the framework says that an epoch ends, or keep less."""
        name = growth.holding.name.rpartition(".")[2]
        return f"`self.{name}.clear()` at the end of the epoch, or a running metric instead of the outputs"

    def in_file(self, file: kit.SourceFile) -> kit.Findings:
        """Lists that a hook fills for each batch and nothing empties; a Trainer that gathers a vocabulary's logits."""
        if file.mentions("LightningModule", "Callback"):
            for owner in file.classes.values():
                if file.roles.of_class(owner) & {"lightning", "hooked"}:
                    yield from self._gathered(file, owner)
        # Each of these options makes a Trainer gather less.
        if file.mentions("compute_metrics") and not file.mentions(
            "preprocess_logits_for_metrics", "eval_accumulation_steps", "prediction_loss_only", "predict_with_generate"
        ):
            for event in file.calls("Trainer", "Seq2SeqTrainer"):
                if _gathers_logits(file, event):
                    yield self._of_trainer(file, event)

    def _gathered(self, file: kit.SourceFile, owner: ClassModel) -> kit.Findings:
        for name, method in owner.methods.items():
            if name not in _PER_BATCH:
                continue
            own = method.self_name()
            for event in method.events:
                kept = store(event)
                # What is the hook's own dies with it.
                if kept is None or kept.adds or not kept.name.startswith(f"{own}."):
                    continue
                size = _size(file, kept)
                if size is not None and not _is_emptied(owner, kept.name.split(".")[1].split("[")[0]):
                    yield self._kept(file, kept, name, size)

    def _kept(self, file: kit.SourceFile, kept: Stored, hook: str, severity: kit.Severity) -> kit.Finding:
        return self.suspect(
            file,
            kept.event,
            f"{kept.name} keeps {file.segment(kept.value)} of every batch: {hook} adds to it "
            "and nothing in the class empties it",
            severity="info" if training_loops.is_test(file) else severity,
            cause="the object lives as long as the training does",
            advice=f"`{kept.name}.clear()` at the end of the epoch, or a running metric instead of the outputs",
            about=kit.About(operands=(kept.name,)),
        )

    def _of_trainer(self, file: kit.SourceFile, event: Event) -> kit.Finding:
        return self.suspect(
            file,
            event,
            "this Trainer gathers the logits of the whole evaluation set for compute_metrics: samples × "
            "length × vocabulary",
            cause="with compute_metrics each batch's logits are kept, on the device, until the evaluation ends",
            advice="give `preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1)`, or what else of the "
            "logits the metrics need",
        )


def _reads_first(function: Unit) -> int:
    """The first line of a function that reads what it is given; its own where none does."""
    given = set(function.given_parameters[:1])
    uses = (n for n in ast.walk(function.node) if isinstance(n, ast.Name) and n.id in given)
    return min((use.lineno for use in uses), default=function.node.body[0].lineno)


def _at_the_end(growth: kit.Growth, batches: int) -> int:
    """Bytes that a name comes to in an evaluation of so many batches, as it was seen to grow."""
    return growth.bytes + round(growth.bytes_per_step * max(0, batches - growth.last_step))


def _is_large(growth: kit.Growth, batches: int) -> bool:
    return _at_the_end(growth, batches) >= _LARGE


_LARGE = 32 << 20
_METRICS = 8
"""The place of `compute_metrics` among the arguments of a Trainer, if none has its name."""


def _size(file: kit.SourceFile, kept: Stored) -> kit.Severity | None:
    """How much a stored value matters: an output is large, a loss a number with its nodes, what is neither unknown."""
    values = parts(kept.value) if isinstance(kept.value, (ast.Tuple, ast.List, ast.Dict)) else [kept.value]
    if any(_is_output(file, value, kept.event) for value in values):
        return "warning"
    return "info" if any("loss" in file.roles.of(value, kept.event.unit) for value in values) else None


def _is_output(file: kit.SourceFile, node: ast.AST | None, event: Event) -> bool:
    """Whether a value is what the module itself, or a module of it, gave for a batch."""
    # Methods one on another and names behind them: a loop, so that `x = x.detach()` comes to an end.
    for _ in range(8):
        if is_call(node, *_AS_LARGE):
            on = receiver(node)
            node = node.args[0] if on is None or file.dotted(on).startswith("torch") else on
        elif isinstance(node, ast.Call):
            return _runs_module(file, node, event.unit)
        elif isinstance(node, ast.Name):
            node = _bound(node.id, event)
        elif isinstance(node, ast.Attribute) and node.attr in ("logits", "last_hidden_state"):
            node = node.value
        else:
            return False
    return False


def _runs_module(file: kit.SourceFile, node: ast.Call, unit: Unit) -> bool:
    own = unit.self_name()
    if isinstance(node.func, ast.Name):
        return node.func.id == own
    if isinstance(node.func, ast.Attribute) and terminal(node.func.value) == own:
        roles = file.roles.of(node.func, unit)
        known = "module" in roles and "criterion" not in roles
        return known or node.func.attr == "forward" or (not roles and file.roles.hinted("module", node.func))
    return False


def _bound(name: str, event: Event) -> ast.AST | None:
    for binding in reversed(event.unit.bindings.get(name, [])):
        if binding.index < event.index and isinstance(binding.node, ast.Assign):
            target = next((t for t in targets_of(binding.node) if terminal(t) == name), None)
            return value_for(binding.node, target) if target is not None else None
    return None


def _is_emptied(owner: ClassModel, attribute: str) -> bool:
    """Whether any method but the constructor binds the attribute anew, empties it or takes from it."""
    methods = [(name, method) for one in owner.lineage for name, method in one.methods.items()]
    calls = (e.call.func for _, method in methods for called in _EMPTYING for e in method.calls.get(called, ()))
    bound = (t for name, method in methods if name != "__init__" for e in method.events for t in targets_of(e.node))
    anew = any(getattr(root_of(t), "attr", "") == attribute for t in bound)
    # A list of another class's making, or one that is handed on, may be emptied there.
    return anew or attribute not in owner.attributes or any(attribute in ast.unparse(called) for called in calls)


def _gathers_logits(file: kit.SourceFile, event: Event) -> bool:
    """Whether a Trainer of transformers evaluates, with metrics, a model whose logits span a vocabulary."""
    given = {k.arg: k.value for k in event.call.keywords}
    metrics = given.get("compute_metrics")
    if not file.dotted(event.call.func).startswith("transformers.") or metrics is None:
        return False
    # `None` is the key of `**options`, which may set what is missing.
    if isinstance(metrics, ast.Constant) or None in given:
        return False
    model = given.get("model", event.call.args[0] if event.call.args else None)
    return any(_is_wide(made) or _wraps_wide(made, where) for made, where in origins.made_by(model, event.unit))


def _is_wide(node: ast.expr) -> bool:
    on = receiver(node) if isinstance(node, ast.Call) else None
    return on is not None and terminal(node) in ("from_pretrained", "from_config") and terminal(on).endswith(_WIDE)


def _wraps_wide(node: ast.expr, unit: Unit) -> bool:
    """`get_peft_model(model, …)`, `prepare_model_for_kbit_training(model)`."""
    if not isinstance(node, ast.Call) or not node.args or "model" not in terminal(node):
        return False
    return any(_is_wide(made) for made, _ in origins.made_by(node.args[0], unit))
