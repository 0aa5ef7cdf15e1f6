"""Findings of a backward that failed in the graph of an earlier pass, in the user's names."""

from __future__ import annotations

import re
from typing import get_args

from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.memory._carried import Carrier, carriers
from torchvet.rules.memory.fixes.detached_state import CONTAINERS, PASSED

_KINDS = frozenset(get_args(kit.HolderKind))
_NO_ANSWER = "`retain_graph=True` is no answer: it keeps every pass's graph alive, and each backward goes through all"


def crashed(rule: kit.Rule, recording: kit.Recording) -> kit.Findings:
    """What carried a graph over to the pass that failed; the backward alone where no name is to be found."""
    for rank in recording.ranks:
        record = rank.last(records.memory.CarriedGraph)
        if record is not None:
            found = carriers(recording, record)
            yield from (_finding(rule, rank, recording, record, one) for one in _together(found))
            if not found:
                yield _unnamed(rule, rank, record)


def _together(found: list[Carrier]) -> list[list[Carrier]]:
    """Variables of one tensor each that one line binds, as `h, c = cell(x, (h, c))`, are one fault; all else is its
    own."""
    groups: dict[object, list[Carrier]] = {}
    for one in sorted(found, key=_position):
        # Only such can be cut by one statement.
        plain = one.name.name.isidentifier() and not one.name.container and one.store.kind == "assign" and not one.once
        groups.setdefault((one.store.path, one.store.line) if plain else id(one), []).append(one)
    return list(groups.values())


def _position(carrier: Carrier) -> int:
    """Where a name stands on the line that binds it."""
    found = re.search(rf"\b{re.escape(carrier.name.name)}\b", carrier.store.text)
    # So that `h, c` is told in the order in which it is written.
    return found.start() if found is not None else 0


def _finding(
    rule: kit.Rule,
    rank: kit.RankRecording,
    recording: kit.Recording,
    record: records.memory.CarriedGraph,
    group: list[Carrier],
) -> kit.Finding:
    carrier = group[0]
    name, store = carrier.name, carrier.store
    at = kit.Location(
        path=store.path, line=store.line, column=store.column, end_line=store.end_line, function=store.function or None
    )
    kind = name.kind if name.kind in _KINDS else "unknown"
    return rule.observed(
        rank, severity="error", message=_message(record, group), place=at, cause=_cause(record, group),
        advice=_advice(group), about=_about(group), measured=kit.Measured(steps=record.passes + 1),
        holder=kit.Holder(name=name.name, kind=kind, path=name.path),  # type: ignore[arg-type]
        related=_related(rank, recording, record, carrier),
    )  # fmt: skip


def _names(group: list[Carrier]) -> str:
    return " and ".join(c.name.name for c in group)


def _message(record: records.memory.CarriedGraph, group: list[Carrier]) -> str:
    name, line = _names(group), record.place.line
    if group[0].once:
        once = f"{name} is computed once, before the loop"
        return f"{once}, and every backward in line {line} goes through its graph: pass {record.passes + 1} raised"
    return (
        f"{name} {'carries its' if len(group) == 1 else 'carry their'} autograd graph from one pass into the next: the "
        f"backward in line {line} went into the graph of the pass before, and raised in pass {record.passes + 1}"
    )


def _cause(record: records.memory.CarriedGraph, group: list[Carrier]) -> str:
    name, carrier = _names(group), group[0]
    # torch raises for both: for buffers that are freed, and for saved tensors of another version.
    if record.why == "changed":
        spoilt = "what that graph saved has been changed in place since, as an optimizer's step changes the weights"
    else:
        spoilt = "what that graph saved was freed by the backward before"
    if carrier.once:
        return f"the graph of {name} is made once: {spoilt}"
    return f"`{carrier.store.text}` binds {name} to what has the graph of all passes before it, and {spoilt}"


def _advice(group: list[Carrier]) -> str:
    carrier, name = group[0], group[0].name.name
    if carrier.once:
        return (
            f"compute {name} within the loop, if what it is made of is to be trained; else cut it off once: "
            f"`{name} = {name}.detach()`. {_NO_ANSWER}"
        )
    if len(group) > 1:
        names = [c.name.name for c in group]
        cut = f"`{', '.join(names)} = {', '.join(f'{n}.detach()' for n in names)}`"
    elif carrier.name.container in ("tuple", "list") and carrier.store.kind == "assign":
        cut = f"`{name} = {carrier.name.container}(t.detach() for t in {name})`"
    # Detaching the item where it is stored would cut the pass's own graph as well.
    elif carrier.store.kind == "item" and not carrier.name.container:
        cut = f"read {name} as `{name}.detach()` where the next pass begins"
    elif carrier.name.container or carrier.store.kind not in ("assign", "augmented"):
        cut = f"empty {name} after each backward, or, where its values need no gradients, put in their `.detach()`"
    else:
        cut = f"`{name} = {name}.detach()`"
    return f"cut the graph between steps: {cut}. {_NO_ANSWER}"


def _about(group: list[Carrier]) -> kit.About:
    """The state's container, or the variables that it is made of."""
    first = group[0]
    if first.once:
        return kit.NOTHING_MORE
    if len(group) > 1:
        return kit.About(operands=tuple(c.name.name for c in group))
    whole = first.name.container in CONTAINERS and first.store.kind == "assign"
    return kit.About(first.name.container if whole else "")


def _related(
    rank: kit.RankRecording, recording: kit.Recording, record: records.memory.CarriedGraph, carrier: Carrier
) -> list[kit.Related]:
    """Where it raised, and the line of the function that binds the name from which that was run."""
    message, store = record.message.partition(" (or ")[0], carrier.store
    found = [kit.Rule.beside("raised", message, record.place)]
    ended = rank.last(records.training.Outcome)
    # From the traceback: a fix goes right behind that line.
    for place in () if ended is None or carrier.once else ended.stack:
        span = recording.index.function_at(place.path, place.line)
        there = place.path == store.path and (span.qualname if span is not None else "") == store.function
        if there and place != record.place:
            found.append(kit.Rule.beside(PASSED, "the backward was run from here", place))
            break
    return found


def _unnamed(rule: kit.Rule, rank: kit.RankRecording, record: records.memory.CarriedGraph) -> kit.Finding:
    passes = record.passes + 1
    return rule.observed(
        rank,
        severity="error",
        place=record.place,
        measured=kit.Measured(steps=passes),
        message=f"the backward went into the autograd graph of the pass before, and raised in pass {passes}",
        cause="something that the pass before has computed is used in this one with its graph; no name leads to it",
        advice=f"detach what is kept from one pass to the next, where it is kept. {_NO_ANSWER}",
        related=[rule.beside("raised", record.message.partition(" (or ")[0], record.place)],
    )
