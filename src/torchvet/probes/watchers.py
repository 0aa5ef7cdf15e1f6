"""Which watchers a session has."""

from __future__ import annotations

from torchvet.probes.nonfinite import NonFiniteWatcher
from torchvet.probes.watcher import Watcher

WATCHERS: tuple[type[Watcher], ...] = (NonFiniteWatcher,)
"""In the order in which they are told. A watcher's first docstring line names what is unchecked where it fails."""
