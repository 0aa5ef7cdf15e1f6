"""`torchvet inspect --engine`: thousands of files, a digest each, one report.

paths ──engine──▶ workers: `digest_of` a file, where it lies ──digests──▶ `merged` ──▶ report
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from torchvet.errors import BadInput

if TYPE_CHECKING:
    from torchvet.finding import Report
    from torchvet.fleet.digest import Asked, Digest
    from torchvet.fleet.engines import Engine


def inspect_fleet(
    paths: Sequence[str], engine: Engine, asked: Asked, heard: Callable[[Digest], None] = lambda digest: None
) -> Report:
    """The report on many files. `heard` is called with each digest. Ctrl-C ends the reading, and the report says so.

    Raises `BadInput` where no file can be read.
    """
    from torchvet.fleet.digest import digest_of
    from torchvet.fleet.merge import merged
    from torchvet.fleet.paths import is_relative

    # The workers of a cluster that runs already have a working directory of their own.
    folder = os.getcwd() if any(is_relative(path) for path in paths) else ""
    work = partial(digest_of, asked=asked, folder=folder)
    digests: list[Digest] = []
    try:
        with closing(engine.digests(paths, work)) as coming:
            for digest in coming:
                digests.append(digest)
                heard(digest)
    except KeyboardInterrupt:
        pass  # the report says how far it came
    if len(digests) == len(paths) and all(d.error is not None for d in digests):
        first = min(digests, key=lambda d: d.path)
        raise BadInput(f"none of {len(paths):,} files could be read; the first: {first.path}: {first.error}")
    return merged(digests, len(paths), asked.ignore)
