"""DEV108: a checkpoint is loaded onto the device that it was saved from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchvet import formatting
from torchvet.rules.device._checkpoints import saved_from_host, shares_a_gpu
from torchvet.rules.kit import Finding, Measured, RankRecording, Recording, Rule, Severity, SourceFile, grading, records
from torchvet.rules.shared.peaks import peak_of
from torchvet.source import model

_ADVICE = "add `map_location='cpu'`, and let load_state_dict copy to the right device"
_RESTORES = "torch.load restores every tensor to the device that it was saved from"
_KEPT = 3
"""Step boundaries at which it was still there."""


class CheckpointLoadsOnWrongDevice(Rule):
    """A checkpoint is loaded onto the device that it was saved from."""

    severity = "warning"
    words = ("load",)
    found_with = ("run", "--simulate-gpu", "24GiB")
    silence_clears = False  # what goes well on this machine goes wrong on another

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """A file that asked for a device that is not there, or whose tensors lie beside the model for nothing."""
        for absent in rank.all(records.device.AbsentDevice):
            if absent.checkpoint:
                yield self._absent(rank, absent)
        for loaded in rank.latest(records.device.LoadedCheckpoint):
            where = [d for d in loaded.bytes if d != "cpu"]
            if loaded.into and any(d not in loaded.into for d in where):
                yield self._elsewhere(rank, loaded)
            elif where and loaded.kept >= _KEPT:
                yield self._kept(rank, loaded)

    def _absent(self, rank: RankRecording, record: records.device.AbsentDevice) -> Finding:
        message = "the file was saved on a GPU that is not there, and nothing says where else to load it to"
        return self.observed(rank, record.place, message, cause=record.message, advice=_ADVICE, severity="error")

    def _elsewhere(self, rank: RankRecording, record: records.device.LoadedCheckpoint) -> Finding:
        wrong = {d: n for d, n in record.bytes.items() if d != "cpu" and d not in record.into}
        size = sum(wrong.values())
        follows = set(wrong) <= set(record.settled)
        into = ", ".join(record.into)
        now = f"was on {into} then and moved there later" if follows else f"is on {into}"
        message = (
            f"{formatting.size(size)} of a checkpoint were loaded to {', '.join(sorted(wrong))}, and {record.owner} "
            f"{now}"
        )
        severity = self._of_elsewhere(rank, record, size, follows)
        measured = Measured(bytes=size)
        return self.observed(
            rank, record.place, message, cause=_RESTORES, advice=_ADVICE, severity=severity, measured=measured
        )

    @staticmethod
    def _of_elsewhere(
        rank: RankRecording, record: records.device.LoadedCheckpoint, size: int, follows: bool
    ) -> Severity:
        """A GPU that the model has nothing to do with is another rank's, or gets a context for this alone, whatever the
        file's size. One that the model comes to is in use anyway: the memory is there again when the file's tensors are
        gone."""
        if follows:
            return "info"
        if any(d != "cpu" for d in record.into):
            return "warning"
        return grading.of_waste(size, size / max(peak_of(rank), size, 1))

    def _kept(self, rank: RankRecording, record: records.device.LoadedCheckpoint) -> Finding:
        size = sum(n for d, n in record.bytes.items() if d != "cpu")
        share = size / (peak_of(rank) or size)
        where = ", ".join(d for d in record.bytes if d != "cpu")
        cause = "what torch.load gave is still referred to after load_state_dict has copied it"
        if record.copied > 1:
            cause += f": the program goes back to it, {record.copied} times so far"
        return self.observed(
            rank,
            record.place,
            f"a checkpoint's {formatting.size(size)} stayed on {where} over {record.kept:,} step boundaries beside "
            f"{record.owner or 'the model'}, which has its own copy",
            cause=cause,
            advice=f"{_ADVICE}; or free it: `del` its name",
            severity="info" if record.copied > 1 else grading.of_waste(size, share),
            measured=Measured(bytes=size, steps=record.kept, peak_bytes=peak_of(rank) or None, share=share),
        )

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """`torch.load` without `map_location`: a warning where ranks or a choice of device make it matter."""
        for event in file.calls("load"):
            call = event.call
            placed = {k.arg for k in call.keywords} & {"map_location", None}
            if file.dotted(call.func) != "torch.load" or len(call.args) > 1 or placed:
                continue
            if not _is_loaded_elsewhere_otherwise(file, event):
                yield self._finding(file, event, *self._grade(file, event))

    @staticmethod
    def _grade(file: SourceFile, event: model.Event) -> tuple[Severity, str]:
        usual: tuple[Severity, str] = "info", "its tensors go to the device that they were saved from"
        if _made_here(event) or _saved_just_before(file, event) or _first_rank_only(file, event):
            return usual
        if _written_before(event) or _meets_numpy(file, event) or saved_from_host(file):
            return usual
        # Saved on `cuda:0`, it comes back to `cuda:0` in every rank: all of them fill the first GPU.
        shared = not event.call.args or "rank" not in file.segment(event.call.args[0])  # else each has its own file
        if shared and shares_a_gpu(file) and "rank" in file.text_of(event.unit):
            return "warning", "every rank loads it onto the GPU that it was saved from"
        chosen = file.mentions("is_available()") and any(
            file.devices.may_be_host(binding, event.unit) for binding in _device_variables(event)
        )
        if chosen and not _run_has_saved(file, event):
            return "warning", "saved on a GPU it does not load where the program falls back to the CPU"
        return usual

    def _finding(self, file: SourceFile, event: model.Event, severity: Severity, reason: str) -> Finding:
        call = event.call
        # `load_state_dict` copies from any device.
        change, to_model = [], model.is_call(event.parent, "load_state_dict")
        # What is not state alone (a whole module, a batch) may be computed with where it was loaded to.
        if (to_model or _is_state(event)) and call.args and not call.keywords and call.lineno == call.end_lineno:
            written = file.segment(call)
            change = (
                [model.edits.replace(file, call, f'{written[:-1]}, map_location="cpu")')] if written[-2] != "," else []
            )
        message = f"{file.segment(call)} without map_location: {reason}"
        return self.suspect(
            file, event, message, cause=_RESTORES, advice=_ADVICE, severity=severity, edits=change, safe=to_model
        )


_WRITING = re.compile(r"^(fit|train|save|write|dump|export|convert)(_|$)")
_SETTINGS = {"args", "opt", "opts", "cfg", "config", "conf", "hparams", "self", "os", "osp", "Path", "path", "str"}
"""Names that stand in many paths and are given to many calls."""
_BUFFERS = ("BytesIO", "NamedTemporaryFile", "TemporaryFile")
_OF_STATE = {"items", "keys", "values", "get", "pop"}


def _is_state(event: model.Event) -> bool:
    """Whether what is loaded is a dictionary that is taken apart or copied from, as far as its function shows, and what
    is taken out of it at once no module."""
    entry = isinstance(event.parent, ast.Subscript)
    statement, value = event.statement, event.parent if entry else event.node
    bound = model.target_names(statement)
    if not isinstance(statement, ast.Assign) or statement.value is not value or len(bound) != 1:
        return entry
    name, nodes = bound.pop(), model.walk(event.unit.node)
    called = any(isinstance(n, ast.Call) and model.is_name(n.func, name) for n in nodes)
    asked = {n.attr for n in nodes if isinstance(n, ast.Attribute) and model.is_name(n.value, name)}
    if called or asked - _OF_STATE:
        return False
    return entry or any(model.is_name(of, name) for n in nodes for of in _dictionaries(n))


def _dictionaries(node: ast.AST) -> list[ast.expr]:
    """What a node uses as a dictionary of state."""
    if isinstance(node, ast.Subscript):
        return [node.value] if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str) else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "load_state_dict":
            return node.args[:1]
        return [node.func.value] if node.func.attr in _OF_STATE else []
    return []


def _is_loaded_elsewhere_otherwise(file: SourceFile, event: model.Event) -> bool:
    """Whether another arm of the same branch loads the same file with a `map_location`: then this one is meant."""
    path = [ast.dump(a) for a in event.call.args]
    others = (e for e in event.unit.calls.get("load", ()) if e.excludes(event))
    return any(
        [ast.dump(a) for a in other.call.args[:1]] == path
        and file.dotted(other.call.func) == "torch.load"
        and model.argument(other.call, "map_location", 1) is not None
        for other in others
    )


def _made_here(event: model.Event) -> bool:
    """Whether it is a buffer or temporary file of this function: what this process saved itself just before."""
    source = event.call.args[0] if event.call.args else None
    if isinstance(source, ast.Attribute):
        source = source.value
    bindings = event.unit.bindings.get(source.id, ()) if isinstance(source, ast.Name) else ()
    made = (getattr(b.node, "value", None) for b in bindings)
    return any(isinstance(b.node, ast.With) for b in bindings) or any(model.terminal(v) in _BUFFERS for v in made)


def _saved_just_before(file: SourceFile, event: model.Event) -> bool:
    """Whether the function itself has saved that very path, whatever way it went."""
    for save in event.unit.calls.get("save", ()):
        paths = [ast.dump(call.args[at]) for call, at in ((save.call, 1), (event.call, 0)) if len(call.args) > at]
        same = len(paths) == 2 and paths[0] == paths[1] and file.dotted(save.call.func) == "torch.save"
        if same and save.index < event.index and event.sure_after(save):
            return True
    return False


def _written_before(event: model.Event) -> bool:
    """Whether something that is named like writing was done with the path's object just before: `trainer.train()`
    before `trainer.snapshot_path` is read, `convert(out_dir)` before `out_dir / "model.pth"` is."""
    read = model.names_in(event.call.args[0]) - _SETTINGS if event.call.args else set()
    calls = (e for e in event.unit.events[: event.index] if read and e.node.__class__ is ast.Call)
    writing = (e for e in calls if _WRITING.search(model.terminal(e.node)) and event.sure_after(e))
    return any(
        read & set().union(*map(model.names_in, (model.receiver(e.call), *model.given(e.call)))) for e in writing
    )


def _meets_numpy(file: SourceFile, event: model.Event) -> bool:
    """Whether entries of what is loaded go into one call with what NumPy has computed: then they are arrays too."""
    loaded, entries, arrays = model.target_names(event.statement), set[str](), set[str]()
    for other in event.unit.events:
        value = other.node.value if isinstance(other.node, ast.Assign) else None
        if isinstance(value, ast.Subscript) and model.terminal(value.value) in loaded:
            entries |= model.target_names(other.node)
        elif isinstance(value, ast.Call) and file.dotted(value.func).startswith("numpy."):
            arrays |= model.target_names(other.node)
    calls = (e.call for e in event.unit.events[event.index :] if e.node.__class__ is ast.Call)
    together = ({model.terminal(one) for one in model.given(call)} for call in calls)
    return any(names & entries and names & arrays for names in together)


def _run_has_saved(file: SourceFile, event: model.Event) -> bool:
    """Whether the run saves checkpoints before it loads: what it saved, on whatever device, it can load."""
    saves = file.calls("save", "ModelCheckpoint", "Checkpoint")
    own = (e for e in saves if model.terminal(e.node) != "save" or file.dotted(e.call.func) == "torch.save")
    return any(_comes_before(file, save, event, 0) for save in own)


def _comes_before(file: SourceFile, one: model.Event, event: model.Event, depth: int) -> bool:
    """Whether an event, or a call that leads to it, stands before another in the other's function."""
    if one.unit is event.unit:
        return one.index < event.index and not one.excludes(event)
    return depth < 3 and any(_comes_before(file, caller, event, depth + 1) for caller in file.callers(one.unit))


def _device_variables(event: model.Event) -> Iterator[ast.expr]:
    unit = event.unit
    if unit.self_name():
        yield ast.Attribute(value=ast.Name(id=unit.self_name()), attr="device")
    around: model.Unit | None = unit
    while around is not None:
        yield from (ast.Name(id=name) for name in around.bindings if "dev" in name.lower())
        around = around.parent


def _first_rank_only(file: SourceFile, event: model.Event) -> bool:
    """Whether a condition about ranks or devices decides that it is loaded, or other ranks have left before: then one
    rank, or one device, is meant."""
    tests = [getattr(branch, "test", None) for branch, _ in event.context.arms]
    passed = [getattr(branch, "test", None) for branch, _ in event.context.guards]
    words = (*((test, ("rank", "gpu", "device", "cuda")) for test in tests), *((test, ("rank",)) for test in passed))
    return any(test is not None and any(w in file.segment(test) for w in asked) for test, asked in words)
