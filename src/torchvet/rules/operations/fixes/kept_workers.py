"""An edit for a loader that starts its workers anew for each pass: they are kept."""

from __future__ import annotations

from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.rules.operations.fixes.whole_batches import maker_of
from torchvet.source.model import edits


def kept_workers(file: SourceFile, finding: Finding) -> Edits:
    """`persistent_workers=True` in the call that makes the loader.

    Nothing where a loop makes a loader for each pass, which ends the workers with it, or where arguments may have it.
    """
    made = maker_of(file, finding)
    if made is None or made.loop is not None:
        return ()
    if any(one.arg in (None, "persistent_workers") for one in made.call.keywords):
        return ()
    return edits.with_argument(file, made.call, "persistent_workers=True")
