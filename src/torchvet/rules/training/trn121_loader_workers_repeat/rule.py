"""TRN121: workers of a loader draw the same random numbers as each other, or as in the epoch before."""

from __future__ import annotations

from torchvet.recording.records.reading import WorkerDraws
from torchvet.rules.kit import Finding, Findings, Location, Measured, Place, RankRecording, Recording, Rule, SourceFile
from torchvet.rules.training import _worker_generators as sources
from torchvet.rules.training._repeated_draws import Repeated, repeated

_SEEDED = (
    "let torch seed the workers, or seed from what it has drawn, `torch.initial_seed() % 2**32`, which is another "
)
_SEEDED += "number for each worker and epoch"
_COPIED = "draw from `torch`, `random` or `np.random`, which torch seeds in each worker and epoch, or make the "
_COPIED += "generator in the worker, from `torch.initial_seed()`"


class LoaderWorkersRepeat(Rule):
    """Workers of a loader draw the same random numbers as each other, or as in the epoch before."""

    severity = "warning"
    words = ("num_workers",)
    fix_changes_results = True
    silence_clears = False  # workers that are spawned, and those of a short loop, are not looked into

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Generators that began at one state and drew on from there; once for each line that makes or seeds them."""
        told: set[object] = set()
        for seen in repeated(rank.all(WorkerDraws)):
            place = _place(recording, seen.first)
            # One `worker_init_fn` seeds three of them, and each of several transforms may keep one.
            key = (place.path, place.line) if place is not None else seen.first.name
            if key not in told:
                told.add(key)
                yield self._seen(rank, seen, place)

    def _seen(self, rank: RankRecording, seen: Repeated, place: Location | None) -> Finding:
        first = seen.first
        name, made = f"`{first.name}`", first.made
        related = [self.beside("loader", "the loader is made here", made)] if made is not None else []
        return self.observed(
            rank,
            place,
            f"{name} draws the same random numbers {_where(seen)}",
            cause=_cause(seen),
            advice=_COPIED if first.kept else _SEEDED,
            measured=Measured(steps=seen.batches),
            related=related if made is not None and not _is_at(place, made) else [],
        )

    def in_file(self, file: SourceFile) -> Findings:
        """Generators that a data set of the file keeps and draws samples from, and seeds that are the same each
        time."""
        for kept in sources.kept_by_datasets(file):
            shared = "each worker" if kept.several else "the worker"
            yield self.suspect(
                file,
                kept.made,
                f"{kept.owner}.{kept.attribute} draws the same random numbers in "
                + ("all workers of the loader" if kept.several else "each epoch"),
                severity="warning" if kept.sure else "info",
                node=kept.made.statement,
                cause=f"{shared} gets a copy of it, in the state in which the data set was made"
                + ("" if kept.persistent else ", and each epoch has new workers"),
                advice=_COPIED,
                related=[self.also(file, "loader", kept.loader), self.also(file, "draw", kept.drawn)],
            )
        for seed in sources.fixed_seeds(file):
            yield self.suspect(
                file,
                seed.event,
                "each worker is seeded alike" if seed.alike else "each worker is seeded alike in each epoch",
                severity="warning" if seed.alike and seed.sure else "info",
                cause="the seed has nothing of the worker's number, nor of the epoch's"
                if seed.alike
                else "each epoch has new workers, and the seed has nothing of the epoch's",
                advice=_SEEDED,
                related=[self.also(file, "loader", seed.loader)],
            )


def _where(seen: Repeated) -> str:
    said = []
    if seen.workers:
        of = "both" if seen.workers == seen.first.workers == 2 else f"all {seen.workers}"
        said.append(f"in {of if seen.workers == seen.first.workers else seen.workers} workers")
    if seen.epochs:
        said.append(f"in each of {seen.epochs} epochs")
    return " and ".join(said)


def _cause(seen: Repeated) -> str:
    first = seen.first
    if first.kept:
        why = "each worker had a copy of it, all in one state"
    elif first.starts is not None:
        why = "the function that starts each worker seeded it with the same number"
    else:
        why = "each worker seeded it with the same number"
    return f"{why}, and drew on from there in the {seen.batches} batches that were followed. {_so(seen)}"


def _so(seen: Repeated) -> str:
    if not seen.epochs:
        return "Samples of one batch get what those of another got"
    if seen.same_items:
        return "Each sample gets in each epoch what it got in the first"
    return "Later epochs get no numbers that the first one had not"


def _place(recording: Recording, seen: WorkerDraws) -> Location | None:
    """The line that makes the generator, else the one that begins what seeds it, else that of the loader."""
    if seen.kept:
        at = _bound_at(recording, seen) if seen.attribute and seen.keeper is not None else None
        return at or _location(seen.made)
    return _location(seen.starts or seen.made)


def _bound_at(recording: Recording, seen: WorkerDraws) -> Location | None:
    path = seen.keeper.path if seen.keeper is not None else ""
    file = recording.model(path)
    if file is None:
        return None
    event = sources.binding_of(file, seen.owner, seen.attribute)
    return Location(path=path, line=event.line, function=event.unit.qualname) if event is not None else None


def _location(place: Place | None) -> Location | None:
    return Location(path=place.path, line=place.line, function=place.function) if place is not None else None


def _is_at(place: Location | None, made: Place) -> bool:
    return place is not None and (place.path, place.line) == (made.path, made.line)
