"""A Ray cluster: an existing one, or one that is started on this machine and ends with the work."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import redirect_stdout
from typing import Any

from torchvet.errors import BadInput
from torchvet.fleet.digest import Digest
from torchvet.fleet.engines import DIED, Work
from torchvet.fleet.paths import extra

_AHEAD = 2
"""Tasks that are handed in for each worker, so that none waits for its next file."""
_CONNECTING = 10.0
"""Seconds that the host of a cluster has to answer: Ray itself tries for many minutes where nothing listens."""
_STORE = 128 << 20
"""Bytes of a local cluster's object store: digests are small."""


class RayEngine:
    """A task for each file. Ray tries one again whose worker died."""

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        self.ray = extra("ray", "for --engine ray")
        self.workers, self.address = workers, address

    def digests(self, paths: Sequence[str], work: Work) -> Generator[Digest, None, None]:
        """As `Engine` says. Ray prints what has happened to workers; stdout is for the report alone."""
        with redirect_stdout(sys.stderr):
            yield from self._digests(paths, work)

    def _digests(self, paths: Sequence[str], work: Work) -> Generator[Digest, None, None]:
        ray, own = self.ray, not self.ray.is_initialized()
        if own:
            self._start()

        def digest(path: str) -> Digest:
            return work(path)

        task = ray.remote(num_cpus=1, max_retries=1)(digest)
        size = self.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        # A cluster that has more cores would read those ahead at once as well.
        most = size if self.workers and self.address else _AHEAD * size
        waiting, pending = deque(paths), dict[Any, str]()
        try:
            while waiting or pending:
                while waiting and len(pending) < most:
                    path = waiting.popleft()
                    pending[task.remote(path)] = path
                ready, _ = ray.wait(list(pending), num_returns=1)
                for reference in ready:
                    yield self._digest(reference, pending.pop(reference))
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)
            if own:
                ray.shutdown()

    def _digest(self, reference: Any, path: str) -> Digest:
        errors = self.ray.exceptions
        try:
            found: Digest = self.ray.get(reference)
        except errors.WorkerCrashedError:
            return Digest(path=path, error=DIED)
        except errors.RayError as error:  # a node was lost, or ran out of memory: Ray's own words, without its advice
            return Digest(path=path, error=str(error).strip().splitlines()[-1])
        return found

    def _start(self) -> None:
        """Connect, or start a cluster of as many workers. Raises `BadInput` where Ray cannot."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # what is inspected is nobody else's business
        own: dict[str, Any] = {"num_gpus": 0, "include_dashboard": False, "object_store_memory": _STORE}
        own |= {"num_cpus": self.workers} if self.workers else {}
        try:
            _reach(self.address)
            self.ray.init(
                address=self.address or "local",
                log_to_driver=False,
                logging_level=logging.ERROR,
                **({} if self.address else own),
            )
        except Exception as error:
            where = f"the cluster at {self.address} cannot be reached" if self.address else "no cluster can be started"
            raise BadInput(f"Ray: {where}: {error}") from error


def _reach(address: str | None) -> None:
    """Raises OSError where an address names a port (`host:6379`, `ray://host:10001`) and nothing listens there."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _CONNECTING).close()
