"""Where a program makes its Trainer of transformers, and with which settings."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Iterable, Iterator, Recording, SourceFile
from torchvet.source.model import Event, origins, terminal

TRAINERS = ("Trainer", "Seq2SeqTrainer")


def made_in(recording: Recording, *names: str) -> tuple[SourceFile, Event] | None:
    """The only call in a program that makes a Trainer of one of these names, or of any where none is given."""
    files = [file for path in recording.sources if (file := recording.model(path)) is not None]
    wanted = {name: name for name in names or TRAINERS} | dict.fromkeys(() if names else _own_classes(files))
    found = [(file, event) for file in files for event in file.calls(*wanted) if _makes(file, event)]
    return found[0] if len(found) == 1 else None


def _own_classes(files: Iterable[SourceFile]) -> Iterator[str]:
    """Classes that a program derives from a Trainer of transformers."""
    for file in files:
        yield from (owner.name for owner in file.classes.values() if any(map(_is_trainer, owner.ancestors)))


def _is_trainer(dotted: str) -> bool:
    return dotted.startswith("transformers.") and dotted.endswith("Trainer")


def _makes(file: SourceFile, event: Event) -> bool:
    """Whether a call of that name makes an object: what is called is no method of one."""
    function = event.call.func
    return isinstance(function, ast.Name) or _is_trainer(file.dotted(function))


def argument(event: Event, name: str, position: int) -> ast.expr | None:
    """What a call gives for a parameter, by its name or in its place."""
    given = {k.arg: k.value for k in event.call.keywords}
    plain = event.call.args[position : position + 1]
    return given.get(name, plain[0] if plain and not isinstance(plain[0], ast.Starred) else None)


def settings_of(file: SourceFile, event: Event) -> ast.Call | None:
    """The call of `TrainingArguments` that a Trainer made here is given, where it stands in the same file."""
    made = origins.made_by(argument(event, "args", 1), event.unit)
    calls = [node for node, unit in made if isinstance(node, ast.Call) and unit.file is file]
    plain = len(calls) == len(made) == 1 and terminal(calls[0]).endswith("TrainingArguments")
    return calls[0] if plain else None
