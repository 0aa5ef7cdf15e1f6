"""Losses in which a KL term outweighs a reconstruction, since the two are reduced over different things."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass

from torchvet.rules.kit import Edits, Iterator, SourceFile
from torchvet.rules.training import _elbo_terms as elbo
from torchvet.source import model
from torchvet.source.model import edits, origins

_SHARE = 1 - 1e-3
"""The weight of a KL term, in those of the reconstruction, from which on nobody has made it smaller."""


@dataclass(frozen=True)
class Uneven:
    """A KL term that is a sum, of a batch or of each sample, beside a mean over all elements."""

    kl: elbo.Term
    reconstruction: elbo.Term
    alone: bool
    """Whether there is one mean."""

    @property
    def whole(self) -> bool:
        """Whether the KL is summed over the batch as well."""
        return self.kl.kind == "summed"

    @property
    def event(self) -> model.Event:
        """Where the KL is reduced."""
        assert self.kl.event is not None
        return self.kl.event

    @property
    def reconstructed(self) -> model.Event:
        """Where the reconstruction is."""
        assert self.reconstruction.event is not None
        return self.reconstruction.event


def uneven(file: SourceFile) -> Iterator[Uneven]:
    """The losses of a file that are so. A KL that is weighted in any sum of the file is left alone."""
    if not (file.mentions(*elbo.LOSSES, "mean(") and file.mentions("sum(")):
        return
    found: dict[int, list[Uneven | None]] = defaultdict(list)
    for unit in _units(file):
        for event, terms in elbo.sums(unit):
            for kl in (one for one in terms if one.kind in ("summed", "averaged")):
                if file.gradients.enabled(event) != "no":
                    found[id(kl.node)].append(_beside(kl, terms))
    for sums in found.values():
        first = sums[0]
        if first is not None and None not in sums:
            yield first


def _units(file: SourceFile) -> Iterator[model.Unit]:
    """Those that sum a KL, and those that call them."""
    found = {id(e.unit): e.unit for e in file.calls("sum")}
    for _ in range(2):
        callers = [c.unit for unit in list(found.values()) for c in file.callers(unit)]
        found.update((id(unit), unit) for unit in callers)
    yield from found.values()


def _beside(kl: elbo.Term, terms: list[elbo.Term]) -> Uneven | None:
    """A KL term with its reconstruction; None where it is weighted, or something else in the sum may be that."""
    means = [one for one in terms if one.kind == "mean"]
    others = [one for one in terms if one is not kl and one.kind != "mean"]
    if not means or others or kl.factor is None:
        return None
    heaviest = max((one.factor or 0.0 for one in means), default=0.0)
    known = all(one.factor is not None and one.factor > 0 for one in means)
    if not known or kl.factor < heaviest * _SHARE:
        return None
    return Uneven(kl, means[0], alone=len(means) == 1)


def summed(file: SourceFile, one: Uneven) -> Edits:
    """The reconstruction as a sum: over the batch, or divided by the number of its samples, as the KL is."""
    call, event = one.reconstruction.node, one.reconstructed
    if call is None or not one.alone or model.terminal(call) == "mean":
        return ()
    made = _criterion(file, call, event.unit)
    if made is not None and _has_other_uses(file, call):
        return ()
    given = model.keyword(made or call, "reduction")
    change = edits.with_argument(file, made or call, 'reduction="sum"')
    change = [edits.replace(file, given, '"sum"')] if given is not None else change
    if one.whole or not change:
        return change
    target = model.argument(call, "target", 1)
    if target is None or not _is_whole(event, call):
        return ()
    line, column = edits.end_of(file, call)
    return [*change, edits.insert(file, (line, column), f" / len({file.segment(target)})")]


def _criterion(file: SourceFile, call: ast.Call, unit: model.Unit) -> ast.Call | None:
    """What makes the criterion that a call asks; None for a function."""
    made = (v for v, _ in origins.made_by(call.func, unit) if elbo.is_criterion(file, v))
    return next((v for v in made if isinstance(v, ast.Call)), None)


def _has_other_uses(file: SourceFile, call: ast.Call) -> bool:
    """Whether the criterion that a call asks is asked elsewhere, too."""
    return isinstance(call.func, (ast.Name, ast.Attribute)) and len(list(file.calls(model.terminal(call)))) > 1


def _is_whole(event: model.Event, call: ast.Call) -> bool:
    """Whether a statement binds what a call gives, as it is."""
    return getattr(event.statement, "value", None) is call
