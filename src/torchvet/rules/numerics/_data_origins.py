"""Where a batch comes from that was not finite: what holds its values, and the line that made them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import reduce
from operator import add

from torchvet.rules.kit import Place, Recording, Related, count, records
from torchvet.source.stores import Made, Maker, MakerSearch, Wrong

_MOST = 3
_MOST_ROWS = 8
_INDEX = re.compile(r"\[(\d+)\]")
_KEYS = re.compile(r"\['([^']*)'\]")
_PARTS = {"TensorDataset": "tensors"}
"""Datasets of torch's by the attribute that has what they were given, in its order."""
_CONTAINERS = ("list", "tuple", "dict", "ndarray", "Tensor")


@dataclass
class Origin:
    """What is said of it. `place` is None where the line that reads the batch stays the finding's own."""

    place: Place | None = None
    message: str = ""
    cause: str = ""
    advice: str = ""
    related: list[Related] = field(default_factory=list)


def origin_of(record: records.nonfinite.NonFinite, recording: Recording) -> Origin:
    """Where bad data comes from; empty where nothing is known."""
    origin = record.origin
    if origin is None:
        return Origin()
    held = next((one for one in origin.held if one.same), None)
    if held is not None:
        return _of_held(held, record, recording)
    if origin.variable:
        return _of_variable(origin, record, recording)
    if origin.held:
        return _of_guess(origin, recording)
    return _of_functions(origin, record, recording)


# Values that are kept somewhere -----------------------------------------------------------------------------------


def _of_held(held: records.nonfinite.Held, record: records.nonfinite.NonFinite, recording: Recording) -> Origin:
    made = _made(held, recording)
    found = Origin(message=f"; it comes from {_whole(held)}", cause=f"; {_amount(held)}")
    _choose(found, made, record)
    found.cause += _alone(made.alone)
    of_rows = f"look at {_where(held)} of {_whole(held)}" if held.rows else f"look at {held.name}"
    found.advice = (
        f"{of_rows} and at what it is computed from: leave such values out or replace them there, before training; "
        f"`assert torch.isfinite(torch.as_tensor({_checked(held)})).all()` where it is made keeps it so"
    )
    return found


def _made(held: records.nonfinite.Held, recording: Recording) -> Made:
    search = _search(held, recording)
    if held.is_variable:
        return search.of_variable(held.path, held.line, held.attribute)
    if _PARTS.get(held.owner) == held.attribute:
        index = _INDEX.search(held.name)
        return search.of_argument(held.owner, int(index[1]) if index is not None else 0, "")
    if not held.attribute:
        return search.of_argument("DataLoader", 0, "dataset")
    return search.of_attribute(held.owner, held.attribute)


def _search(held: records.nonfinite.Held, recording: Recording) -> MakerSearch:
    shape = held.operand.shape
    return recording.index.makers(
        Wrong(
            nans=held.operand.nans > 0,
            infinities=held.operand.infinities > 0,
            fills=held.fills,
            columns=held.columns,
            width=shape[-1] if shape else 0,
            keys=_KEYS.findall(held.name),
        )
    )


def _choose(found: Origin, made: Made, record: records.nonfinite.NonFinite) -> None:
    """The line that makes the values if there is one, else the one that assigns them."""
    first = made.alone or (made.assigned[0] if len(made.assigned) == 1 else None)
    if first is not None:
        found.place = records.base.Place(first.path, first.line, first.function)
    others = [one for one in made.assigned if first is None or (one.path, one.line) != (first.path, first.line)]
    found.related += [_at("assigned", one) for one in others[:_MOST]]
    if made.alone is None:
        found.related += [_at("may make it", one) for one in made.makers[:_MOST]]
    _used(found, record)


def _alone(maker: Maker | None) -> str:
    """What the one line does that can have made it, as far as the text of the program tells."""
    return f"; by the text only line {maker.line} can make it: it {maker.does}" if maker is not None else ""


def _used(found: Origin, record: records.nonfinite.NonFinite) -> None:
    place = record.place
    if (
        found.place is not None
        and place is not None
        and (place.path, place.line) != (found.place.path, found.place.line)
    ):
        found.related.append(
            Related(role="used", message="the first operation with it is here", path=place.path, line=place.line)
        )


def _at(role: str, one: Maker) -> Related:
    return Related(role=role, message=one.does, path=one.path, line=one.line)


def _whole(held: records.nonfinite.Held) -> str:
    """`WindowSet.features`, `features of main()`, `the list of samples`; of one of a few `TensorDataset.tensors[0]`."""
    name = held.attribute if held.of_items else held.name
    if held.is_variable:
        return f"{name} of {held.owner}()" if held.owner else name
    return f"{held.owner}.{name}" if held.attribute else f"the {held.owner} of samples"


def _checked(held: records.nonfinite.Held) -> str:
    """The expression for a check: of a list that of one item."""
    if held.is_variable:
        return held.name
    return f"self.{held.name}" if held.attribute else f"samples{held.name}"


def _where(held: records.nonfinite.Held) -> str:
    rows = ", ".join(map(str, held.rows[:_MOST_ROWS]))
    more = " and more" if len(held.rows) > _MOST_ROWS else ""
    return f"row{'s' if len(held.rows) > 1 else ''} {rows}{more}"


def _amount(held: records.nonfinite.Held) -> str:
    """How much of it is not finite, and where."""
    nans, infinities = held.operand.nans, held.operand.infinities
    kinds = [f"{n:,} {kind}" for n, kind in ((nans, "NaN"), (infinities, "infinite")) if n]
    elements = count(nans + infinities, "element").partition(" ")[2]
    wide = len(held.operand.shape) > 1 and 0 < len(held.columns) < min(held.operand.shape[-1], _MOST_ROWS)
    columns = f", column{'s' if len(held.columns) > 1 else ''} {', '.join(map(str, held.columns))}" if wide else ""
    rows = f" ({_where(held)} of {held.of:,}{columns})" if held.rows else ""
    return f"{_whole(held)} has {' and '.join(kinds)} {elements}{rows}, and the batch has its values"


# What is computed or only guessed ---------------------------------------------------------------------------------


def _of_guess(origin: records.nonfinite.DataOrigin, recording: Recording) -> Origin:
    """The dataset holds such values, and none of the batch's others: what it gives is computed, of these or not."""
    held = origin.held[0]
    found = Origin(advice=f"follow what {origin.dataset} makes of {held.name or _whole(held)}: {_where(held)} first")
    text = _amount(held).replace(", and the batch has its values", "; the batch's values are others")
    assigned = _made(held, recording).assigned
    at = assigned[0] if len(assigned) == 1 else None
    found.related.append(Related(role="held", message=text, path=at.path if at else None, line=at.line if at else None))
    found.related += _functions(origin)
    return found


def _seen(record: records.nonfinite.NonFinite) -> Wrong:
    """What is known of the batch itself: of a dict by its name the key."""
    held = record.result
    if held is None:
        return Wrong()
    return Wrong(nans=held.nans > 0, infinities=held.infinities > 0, keys=_KEYS.findall(held.name or ""))


def _functions(origin: records.nonfinite.DataOrigin) -> list[Related]:
    pairs = ((origin.collated, "makes the batch"), (origin.read, "makes an item"))
    return [Related(role="made in", message=f"{p.function} {what}", path=p.path, line=p.line) for p, what in pairs if p]


def _of_functions(
    origin: records.nonfinite.DataOrigin, record: records.nonfinite.NonFinite, recording: Recording
) -> Origin:
    """All that the dataset holds is finite: its functions make it."""
    places = [p for p in (origin.read, origin.collated) if p is not None]
    if not places:
        return Origin()
    search = recording.index.makers(_seen(record))
    made = reduce(add, [search.of_function(p.path, p.function, p.line) for p in places])
    found = Origin(related=_functions(origin))
    names = " or ".join(p.function for p in places)
    found.advice = f"check what {names} gives: `assert torch.isfinite(x).all()` before it returns names the sample"
    if not origin.complete:
        return found
    found.message = f"; {names} makes it"
    found.cause = f"; all that {origin.dataset} holds is finite, so {names} computes or reads it"
    if made.alone is not None:
        found.place = records.base.Place(made.alone.path, made.alone.line, made.alone.function)
        found.cause += _alone(made.alone)
    else:
        if len(places) == 1:
            found.place = places[0]
            found.related = []
        found.related += [_at("may make it", one) for one in made.makers[:_MOST]]
    _used(found, record)
    return found


def _of_variable(
    origin: records.nonfinite.DataOrigin, record: records.nonfinite.NonFinite, recording: Recording
) -> Origin:
    """A batch of no loader, whose values stand in no other variable."""
    at = origin.bound
    if at is None:
        return Origin()
    made = recording.index.makers(_seen(record)).of_variable(at.path, at.line, origin.variable)
    found = Origin()
    _choose(found, made, record)
    if found.place is not None:
        found.cause = _alone(made.alone) or f"; {at.function}() takes {origin.variable} from line {found.place.line}"
        found.advice = f"keep what that line computes finite: `assert torch.isfinite({origin.variable}).all()` after it"
    return found
