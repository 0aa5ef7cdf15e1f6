"""Variants of a case's faulty program, made to get past the tool: the same fault under other names, in another shape.

``python -m casebook.variants`` writes them down or, with ``--check``, runs them beside the programs they are made of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from casebook.case import Case, Expectation
from casebook.program import Program
from casebook.variants.believed import believed
from casebook.variants.closure import enclosed
from casebook.variants.framed import framed
from casebook.variants.joined import joined
from casebook.variants.renamed import renamed
from casebook.variants.session import in_a_class
from casebook.variants.split import split
from casebook.variants.text import Module, Place, write

KINDS = ("renamed", "closure", "class", "split", "framework", "believed")
"""Every kind of variant, in the order in which a case has them."""


@dataclass(frozen=True)
class Variant:
    """One program made of a case's faulty one, and what must be said of it."""

    name: str
    """One of ``KINDS``."""
    program: Program
    expect: Expectation
    second: tuple[str, ...] = ()
    """Codes of which one names the second fault that was put in, if one was."""

    @property
    def case(self) -> Case:
        """The variant as a case, without a fixed program and look-alikes: its faulty program is the variant."""
        return Case(self.program.folder, self.expect)


@dataclass(frozen=True)
class Made:
    """The text of a variant."""

    files: Mapping[str, Module]
    """Its modules by name; a script is one module named ``faulty``."""
    names: Mapping[str, str] | None = None
    """What names have become."""
    second: tuple[str, ...] = ()


def variants(case: Case, folder: Path) -> list[Variant]:
    """Make the case's variants, each in a folder of its own below this one. The same case gives the same text."""
    module = joined(case.faulty)
    made = {kind: _MAKERS[kind](case, module) for kind in KINDS}
    return [_placed(case, kind, each, folder / kind) for kind, each in made.items() if each is not None]


def _renamed(case: Case, module: Module) -> Made:
    text, names = renamed(module)
    return Made({"faulty": text}, names)


def _closure(case: Case, module: Module) -> Made:
    return Made({"faulty": enclosed(module)})


def _class(case: Case, module: Module) -> Made | None:
    text = in_a_class(module)
    return None if text is None else Made({"faulty": text})


def _split(case: Case, module: Module) -> Made | None:
    files = split(module, _lines(module, _places(case)))
    return None if files is None else Made(files)


def _framework(case: Case, module: Module) -> Made:
    return Made(framed(module))


def _believed(case: Case, module: Module) -> Made:
    places = _places(case)
    (faulty,) = _lines(module, places[:1])
    text, second = believed(module, case.expect.code, faulty, _lines(module, places))
    return Made({"faulty": text}, second=second)


_MAKERS: dict[str, Callable[[Case, Module], Made | None]] = {
    "renamed": _renamed,
    "closure": _closure,
    "class": _class,
    "split": _split,
    "framework": _framework,
    "believed": _believed,
}


def _places(case: Case) -> list[Place]:
    """Where the case's lines are, the one that a user would change first."""
    expect = case.expect
    numbers = [replaced.line_numbers().pop() for replaced in _one_by_one(case)]
    return [(expect.file, number) for number in numbers]


def _one_by_one(case: Case) -> list[Case]:
    return [
        replace(case, expect=replace(case.expect, line=s, lines=[])) for s in [case.expect.line, *case.expect.lines]
    ]


def _lines(module: Module, places: list[Place]) -> set[int]:
    return {number for number, line in enumerate(module.lines, start=1) if line.origin in places}


def _placed(case: Case, kind: str, made: Made, folder: Path) -> Variant:
    """Write a variant and say what is expected of it."""
    script = len(made.files) == 1
    paths = {name: f"{name}.py" if script else f"faulty/{name}.py" for name in made.files}
    for name, module in made.files.items():
        write(module, folder / paths[name])
    places = _places(case)
    (name, module), *others = ((n, m) for n, m in made.files.items() if _lines(m, places))
    if others:
        raise ValueError(f"{case.name}, {kind}: expected lines are in more than one file")
    line, *lines = [_snippet(case, module, place) for place in places]
    expect = replace(
        case.expect,
        file=paths[name],
        line=line,
        lines=lines,
        holder=[_with_new_names(holder, made.names or {}) for holder in case.expect.holder],
        # A leak that is put in is counted too, where the case's own is to be measured.
        count=case.expect.count and not made.second,
        also_allowed=[*case.expect.also_allowed, *(c for c in made.second if c != case.expect.code)],
    )
    return Variant(kind, Program(folder, "faulty"), expect, made.second)


def _snippet(case: Case, module: Module, place: Place) -> str:
    """Text that is in one line of the module only: in the one that comes from this place."""
    (text,) = (line.text for line in module.lines if line.origin == place)
    for snippet in (text.strip(), text):
        if sum(snippet in line.text for line in module.lines) == 1:
            return snippet
    raise ValueError(f"{case.name}: {text.strip()!r} is in more than one line")


def _with_new_names(holder: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\w+", lambda found: names.get(found[0], found[0]), holder)
