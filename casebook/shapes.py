"""REFACTOR: is the fault still found under other names and in other shapes?"""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path

from casebook.case import Case
from casebook.run import Means, vetted
from casebook.score import VariantScore, best


def variants(case: Case, means: Means) -> list[VariantScore]:
    """Make the variants of a case and run the tool on each; none where nothing makes them."""
    if find_spec("casebook.variants") is None:
        return []
    from casebook.variants import variants as make  # type: ignore[import-not-found,import-untyped,unused-ignore]

    scores = []
    with tempfile.TemporaryDirectory() as folder:
        for variant in make(case, Path(folder)):
            run = vetted(variant.program, variant.expect.argv, means.tool, variant.expect.command)
            said = run.report.said if run.report else []
            true = {variant.expect.code, *variant.expect.also_allowed, *variant.second}
            alarms = [str(f) for f in said if f.loud and f.code not in true]
            complaint = "" if run.report else run.complaint
            scores.append(VariantScore(variant.name, best(variant.case, said), alarms, complaint))
    return scores
