"""Random generators that data sets of a file keep, and seeds that a file gives to loaders' workers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from torchvet.source.model import (
    ClassModel,
    Event,
    SourceFile,
    Unit,
    argument,
    is_attribute,
    keyword,
    name_set,
    receiver,
    terminal,
    walk,
)

_MAKE = name_set(
    "numpy.random.default_rng numpy.random.Generator numpy.random.RandomState random.Random torch.Generator"
)
_SEED = name_set("numpy.random.seed random.seed torch.manual_seed torch.random.manual_seed")
_RESEEDED = ("initial_seed", "get_worker_info", "set_epoch", "SeedSequence", "bit_generator", "manual_seed_all")
"""Words of a file that knows what workers get."""
_SEEDING = {"seed", "manual_seed", "set_state", "setstate"}
_NOT_TRAINED = re.compile(r"(?i)(?:^|_)(?:val|valid|validation|test|eval|dev|infer|predict)")
_KNOWN_ALIKE = re.compile(r"(?i)(?:^|_)(?:seed|base_seed|random_seed|manual_seed)$")
"""Names of a seed that is one number for the whole program."""


class KeptGenerator(NamedTuple):
    """A generator that a data set keeps, the loader over it, and a line that draws from it."""

    owner: str
    attribute: str
    made: Event
    drawn: Event
    loader: Event
    several: bool
    persistent: bool
    sure: bool
    """Whether the number of workers is written down, and the file trains."""


class FixedSeed(NamedTuple):
    """A seed that workers get; `alike` if it has nothing of the worker's number."""

    event: Event
    loader: Event
    alike: bool
    sure: bool


def binding_of(file: SourceFile, owner: str, attribute: str) -> Event | None:
    """The first line that binds an attribute of a class, or a name of the module where no class is given."""
    if owner:
        known = file.classes.get(owner)
        bound = known.attributes.get(attribute, ()) if known is not None else ()
        return next((event for event, _ in bound), None)
    units = [file.top, *file.units_with(attribute)]
    return next((event for unit in units for event in unit.bindings.get(attribute, ())), None)


def kept_by_datasets(file: SourceFile) -> Iterator[KeptGenerator]:
    """Those that a loader's workers get copies of, once for each attribute."""
    if file.mentions(*_RESEEDED):
        return
    seen: set[tuple[str, str]] = set()
    for loader in file.calls("DataLoader"):
        workers = _workers(loader.call)
        owner = file.roles.class_of(argument(loader.call, "dataset", 0), loader.unit) if workers else None
        if owner is None or workers is None or owner.method("__getitem__") is None or not _is_trained(loader):
            continue
        # What that does to the data set is not followed.
        if keyword(loader.call, "worker_init_fn") is not None:
            continue
        persistent = keyword(loader.call, "persistent_workers") is not None
        # One worker that stays goes on where it was.
        if persistent and workers == 1:
            continue
        for attribute, made, drawn in _generators(file, owner):
            if (owner.name, attribute) not in seen:
                seen.add((owner.name, attribute))
                several = workers != 1
                sure = workers > 0 and file.mentions("backward")
                yield KeptGenerator(owner.name, attribute, made, drawn, loader, several, persistent, sure)


def _workers(call: ast.Call) -> int | None:
    """How many a loader has: None for none, -1 for a number that is not written down."""
    given = keyword(call, "num_workers")
    if given is None:
        return None
    if isinstance(given, ast.Constant):
        return given.value if type(given.value) is int and given.value > 0 else None
    return -1


def _is_trained(loader: Event) -> bool:
    """Whether the names around a loader do not say that it is for evaluation."""
    names = {terminal(argument(loader.call, "dataset", 0)), loader.unit.name}
    if isinstance(loader.statement, ast.Assign):
        names |= {terminal(target) for target in loader.statement.targets}
    return not any(_NOT_TRAINED.search(name) for name in names if name)


def _generators(file: SourceFile, owner: ClassModel) -> Iterator[tuple[str, Event, Event]]:
    for attribute, bound in owner.attributes.items():
        made = [event for event, value in bound if value is not None and _makes(file, value)]
        # What is bound again somewhere may be seeded there.
        if len(bound) != 1 or len(made) != 1 or made[0].unit.name != "__init__":
            continue
        uses = [(event, unit) for unit in _of_samples(owner) for event in _uses(unit, attribute)]
        seeded = any(
            terminal(event.node) in _SEEDING for unit in owner.methods.values() for event in _uses(unit, attribute)
        )
        if uses and not seeded:
            yield attribute, made[0], uses[0][0]


def _makes(file: SourceFile, value: ast.expr) -> bool:
    """Whether an expression makes a generator, `torch.Generator().manual_seed(0)` likewise."""
    if not isinstance(value, ast.Call):
        return False
    if terminal(value) == "manual_seed":
        on = receiver(value)
        return on is not None and _makes(file, on)
    return file.dotted(value.func) in _MAKE


def _of_samples(owner: ClassModel) -> Iterator[Unit]:
    """`__getitem__`, and the methods that it calls on its object, and so on."""
    waiting, seen = ["__getitem__"], set()
    while waiting:
        unit = owner.method(waiting.pop())
        if unit is not None and unit not in seen:
            seen.add(unit)
            yield unit
            own = unit.self_name()
            waiting += [
                name for name, calls in unit.calls.items() if any(terminal(receiver(e.call)) == own for e in calls)
            ]


def _uses(unit: Unit, attribute: str) -> Iterator[Event]:
    """Calls of a generator's methods, and calls that are given it as `generator`."""
    for calls in unit.calls.values():
        for event in calls:
            on, given = receiver(event.call), keyword(event.call, "generator")
            if any(isinstance(one, ast.Attribute) and is_attribute(one, attribute) for one in (on, given)):
                yield event


def fixed_seeds(file: SourceFile) -> Iterator[FixedSeed]:
    """Seeds of the function that a loader calls in each worker."""
    if not file.mentions("worker_init_fn"):
        return
    for loader in file.calls("DataLoader"):
        workers, init = _workers(loader.call), keyword(loader.call, "worker_init_fn")
        if workers is None or init is None or not _is_trained(loader):
            continue
        # Workers that stay, and those of a loader that is made in a loop, may be seeded so for good reason.
        again = keyword(loader.call, "persistent_workers") is None and loader.loop is None
        for event, call, parameter in _seeds_in(file, loader, init):
            kind = _kind_of_seed(file, call, parameter)
            if kind == "alike" or (kind == "by worker" and again):
                alike = kind == "alike" and workers != 1
                if alike or again:
                    yield FixedSeed(event, loader, alike, workers > 1 and file.mentions("backward"))
                break


def _seeds_in(file: SourceFile, loader: Event, init: ast.expr) -> Iterator[tuple[Event, ast.Call, str]]:
    if isinstance(init, ast.Lambda):
        parameter = init.args.args[0].arg if init.args.args else ""
        calls = [n for n in walk(init.body) if isinstance(n, ast.Call) and file.dotted(n.func) in _SEED]
        yield from ((loader, call, parameter) for call in calls)
    elif isinstance(init, ast.Name):
        for unit in file.functions(init.id)[-1:]:
            parameter = (unit.given_parameters or [""])[0]
            for name in ("seed", "manual_seed"):
                for event in unit.calls.get(name, ()):
                    if file.dotted(event.call.func) in _SEED:
                        yield event, event.call, parameter


def _kind_of_seed(file: SourceFile, call: ast.Call, parameter: str) -> str:
    """What is known of a seed: "alike" for a number, "by worker" for one with the worker's number, else nothing."""
    given = argument(call, "seed", 0) or argument(call, "a", 0)
    if given is None:
        return ""
    # The first word of NumPy's state is the same number once an array has seeded it, as torch does in each worker.
    legacy = "get_state()[1][0]" in file.segment(given)
    names = {terminal(n) for n in walk(given) if isinstance(n, (ast.Name, ast.Attribute))}
    others = names - {parameter}
    if not legacy and (any(isinstance(n, ast.Call) for n in walk(given)) or not all(map(_is_one_number, others))):
        return ""
    return "by worker" if parameter in names else "alike"


def _is_one_number(name: str) -> bool:
    return bool(_KNOWN_ALIKE.search(name)) or name in ("args", "config", "cfg", "self", "opt", "hparams")
