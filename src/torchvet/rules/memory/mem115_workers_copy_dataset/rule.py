"""MEM115: a data set of Python objects is copied into every worker, page by page."""

from __future__ import annotations

import ast

from torchvet.formatting import count, percent, size
from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.kit import Finding, Findings, Iterator, RankRecording, Recording, Rule, Severity, SourceFile
from torchvet.rules.memory import _workers
from torchvet.source.model import ClassModel, Event, argument, is_attribute, keyword, name_set, receiver, terminal, walk
from torchvet.source.model.units import behind_progress
from torchvet.source.syntax import parts

_PARSED = name_set(
    "json.load json.loads pickle.load pickle.loads yaml.safe_load yaml.load orjson.loads ujson.load ujson.loads "
    "csv.reader csv.DictReader"
)
_LINES = {"readlines", "splitlines", "to_dict", "iterrows", "itertuples"}
_WORDS = ("json", "pickle", "yaml", "csv", "readlines", "splitlines", "to_dict", "open(")


class WorkersCopyDataset(Rule):
    """A data set of Python objects is copied into every worker, page by page."""

    severity = "warning"
    words = ("num_workers",)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Workers whose private memory rises while they read objects that their data set keeps; once a loader."""
        found: dict[kit.Place | None, records.memory.WorkerMemory] = {}
        for record in rank.latest(records.memory.WorkerMemory, "id"):
            before = found.get(record.place)
            if _workers.copies(record) and (before is None or _workers.grown(before) < _workers.grown(record)):
                found[record.place] = record
        for record in found.values():
            held = _workers.copied(record)
            if held is not None:
                yield self._seen(rank, recording, record, held)

    def _seen(
        self,
        rank: RankRecording,
        recording: Recording,
        record: records.memory.WorkerMemory,
        held: records.memory.HeldObjects,
    ) -> Finding:
        grown, batches = _workers.grown(record), record.batches[-1] - record.batches[0]
        stored = _stored_at(recording, held)
        attribute = held.name.rpartition(".")[2]
        name = f"{held.owner}.{attribute}"
        made = record.place if stored is not None else None
        return self.observed(
            rank,
            stored or record.place,
            f"{count(record.workers, 'worker')} copied {size(grown)} in {batches:,} batches: {name} is a "
            f"{held.kind} of {count(held.items)} Python objects, and every worker gets a copy of it as it reads",
            cause="reading an object writes its reference count, and the page that it lies on is copied. "
            f"Memory private to the workers rose from {size(record.private[0])} to {size(record.private[-1])}; "
            f"the objects are about {size(held.bytes)}, and each worker {_share(held)}",
            advice=f"keep {attribute} in an array or tensor (for text: one buffer and offsets), or read the file in "
            "`__getitem__`",
            severity="warning" if grown >= _workers.LOUD else "info",
            holder=kit.Holder(name=name, kind="attribute", path=[held.owner, *held.name.split(".")]),
            measured=kit.Measured(bytes=grown),
            related=[self.beside("workers", "the loader is made here", made)] if made is not None else [],
        )

    def in_file(self, file: SourceFile) -> Findings:
        """A loader with workers over a data set of this file that keeps what was parsed as Python objects."""
        if not file.mentions(*_WORDS):
            return
        seen: set[tuple[str, str]] = set()
        for event in file.calls("DataLoader"):
            severity = _by_workers(event.call)
            owner = _dataset_of(file, event) if severity is not None else None
            # Those read as they go and keep nothing to copy.
            if owner is None or severity is None or "torch.utils.data.IterableDataset" in owner.ancestors:
                continue
            for attribute, stored in _objects(file, owner):
                if (owner.name, attribute) not in seen and _is_read(owner, attribute):
                    seen.add((owner.name, attribute))
                    yield self._suspected(file, event, owner, attribute, stored, severity)

    def _suspected(
        self, file: SourceFile, event: Event, owner: ClassModel, attribute: str, stored: Event, severity: Severity
    ) -> Finding:
        return self.suspect(
            file,
            stored,
            f"{owner.name}.{attribute} is a list of Python objects: every worker gets a copy of it as it reads",
            severity=severity,
            node=stored.statement,
            cause="reading an object writes its reference count, and the page that it lies on is copied",
            advice=f"keep {attribute} in an array or tensor (for text: one buffer and offsets), or read the file in "
            "`__getitem__`",
            related=[self.also(file, "workers", event, file.segment(event.node))],
        )


def _share(held: records.memory.HeldObjects) -> str:
    if held.copied is None:
        return "may copy them all"
    return f"has {percent(held.copied)} of their pages for itself (a sample of them at the last look)"


def _stored_at(recording: Recording, held: records.memory.HeldObjects) -> kit.Location | None:
    """The line that binds the attribute, where one class of the program has this name."""
    attribute = held.name.rpartition(".")[2]
    lines = []
    for path in recording.sources:
        file = recording.model(path)
        known = file.classes.get(held.owner) if file is not None else None
        bound = known.attributes.get(attribute, ()) if known is not None else ()
        lines += [kit.Location(path=path, line=event.line) for event, _ in bound]
    return lines[-1] if lines else None


def _by_workers(call: ast.Call) -> Severity | None:
    """By how many workers are asked for: none is no finding, a number that is not written down is information."""
    given = keyword(call, "num_workers")
    if isinstance(given, ast.Constant):
        return "warning" if isinstance(given.value, int) and given.value > 0 else None
    return "info" if given is not None else None


def _dataset_of(file: SourceFile, event: Event) -> ClassModel | None:
    found = file.roles.class_of(argument(event.call, "dataset", 0), event.unit)
    return found if found is not None and found.method("__getitem__") is not None else None


def _objects(file: SourceFile, owner: ClassModel) -> Iterator[tuple[str, Event]]:
    """Attributes that are bound to what was parsed out of a whole file, each with the event that fills it."""
    for attribute, bound in owner.attributes.items():
        for event, value in bound:
            if value is not None and _parsed(file, value, event):
                yield attribute, event
                break
    for method in owner.methods.values():
        for event in method.calls.get("append", ()):
            on = receiver(event.call)
            own = isinstance(on, ast.Attribute) and terminal(on.value) == method.self_name()
            # Line by line: `self.rows.append(json.loads(line))`.
            if own and event.loop is not None and any(_parsed(file, a, event) for a in event.call.args[:1]):
                yield terminal(on), event


def _parsed(file: SourceFile, node: ast.AST, event: Event, depth: int = 0) -> bool:
    """Whether a value is Python objects, one or more for each record of a file."""
    if depth > 5:
        return False
    if isinstance(node, ast.Name):
        return _parsed_name(file, node.id, event, depth)
    if isinstance(node, ast.Call):
        dotted = file.dotted(node.func)
        if dotted in _PARSED or terminal(node) in _LINES or _splits_text(node):
            return True
        return dotted in ("list", "sorted", "tuple") and any(_parsed(file, a, event, depth + 1) for a in node.args[:1])
    if isinstance(node, (ast.ListComp, ast.DictComp)) and not _is_number(file, parts(node)[0]):
        records = node.generators[0].iter
        if _is_open(records, event) or _parsed(file, records, event, depth + 1):
            return True
    return isinstance(node, _MADE_OF) and any(_parsed(file, one, event, depth + 1) for one in parts(node))


_MADE_OF = (ast.Subscript, ast.ListComp, ast.DictComp, ast.Dict, ast.Tuple, ast.List)


def _splits_text(call: ast.Call) -> bool:
    """`file.read().split(…)`."""
    return terminal(call) == "split" and terminal(receiver(call)) == "read"


def _parsed_name(file: SourceFile, name: str, event: Event, depth: int) -> bool:
    for binding in reversed(event.unit.bindings.get(name, [])):
        node = binding.node
        # The last binding of these kinds before the event.
        if binding.index < event.index and isinstance(node, (ast.Assign, ast.For)):
            value = node.value if isinstance(node, ast.Assign) else behind_progress(node.iter)
            return _parsed(file, value, binding, depth + 1)
    return False


def _is_open(node: ast.expr, event: Event) -> bool:
    """Whether a comprehension goes over the lines of an open file."""
    if isinstance(node, ast.Call):
        return terminal(node) == "open"
    for binding in event.unit.bindings.get(terminal(node), ()):
        if isinstance(binding.node, (ast.With, ast.AsyncWith)):
            return any(terminal(item.context_expr) == "open" for item in binding.node.items)
    return False


def _is_number(file: SourceFile, node: ast.expr) -> bool:
    """Small numbers are shared objects, large ones are not: neither is worth a line beside an array of them."""
    return isinstance(node, ast.Call) and file.dotted(node.func) in ("int", "len", "torch.tensor", "numpy.array")


def _is_read(owner: ClassModel, attribute: str) -> bool:
    """Whether `__getitem__` takes samples out of it."""
    method = owner.method("__getitem__")
    taken = [n.value for n in walk(method.node) if isinstance(n, ast.Subscript)] if method is not None else []
    return any(is_attribute(value, attribute) for value in taken)
