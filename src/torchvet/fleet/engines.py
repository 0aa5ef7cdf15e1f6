"""What makes digests of many files at a time: processes of this machine, or a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Protocol

from torchvet.errors import BadInput
from torchvet.fleet.digest import Digest

ENGINES = ("local", "ray")
Work = Callable[[str], Digest]
"""Makes the digest of a file, in a worker."""
DIED = "the process that read it died, and once more when it was tried again"


class Engine(Protocol):
    """Gives the digests of files as they come. Closing the generator ends all work."""

    def digests(self, paths: Sequence[str], work: Work) -> Generator[Digest, None, None]:
        """One for each path, in any order. A file that a worker dies of is tried again once, then has an error."""
        ...


def engine_for(name: str, workers: int | None = None, address: str | None = None) -> Engine:
    """An engine by its name. Without `workers`: as many as there are cores. Raises `BadInput` for an address that the
    engine has no use for, `MissingExtra` without Ray."""
    if name == "ray":
        from torchvet.fleet.ray_engine import RayEngine

        return RayEngine(workers, address)
    if address is not None:
        raise BadInput("--address is that of a Ray cluster: add --engine ray")
    from torchvet.fleet.local_engine import LocalEngine

    return LocalEngine(workers)
