"""Where a trial's log and copies lie, who holds them, and what became of trials whose supervisor was killed.

They lie in the user's folder for state, on the disk, so that they outlive the machine. A supervisor has a lock on its
trial's folder, which the system takes away with the process: a folder that nobody holds was left behind. Processes of
the program share one on the log, so that one may wait for the last of them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from torchvet.undo.entries import LOG

_BEATS, _FRESH, _BEGINS, _SETTLED = "alive", "new-", "trial-", "left-"
_STALE = 60.0
"""Seconds without a beat after which a trial is over, where the file system knows no locks."""
SLACK = 1.0
"""Seconds by which the last beat, of two a second, may come before the last change that the trial made."""


def new_folder() -> Held:
    """A folder for one trial, with an empty log. Raises OSError where there is none to be had."""
    wrong: OSError | None = None
    for root in [root for root in _roots() for _ in range(3)]:  # another trial's end may remove it meanwhile
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder = Path(tempfile.mkdtemp(prefix=_FRESH, dir=root))
            (folder / LOG).touch()
            (folder / _BEATS).touch()
            held = Held(folder)
            # Others look only for names that begin so: they find the folder once it is complete and locked.
            held.rename(_BEGINS)
        except OSError as error:
            wrong = wrong or error
            continue
        return held
    raise wrong or FileNotFoundError("no folder for state")


def _roots() -> list[Path]:
    named = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA") or ""
    with contextlib.suppress(RuntimeError):
        named = named or str(Path.home() / ".local" / "state")
    user = os.getuid() if hasattr(os, "getuid") else "user"
    places = [Path(named) / "torchvet" / "trials"] if os.path.isabs(named) else []
    return [*places, Path(tempfile.gettempdir(), f"torchvet-trials-{user}")]


class Held:
    """A trial's folder in the hands of this process. Raises BlockingIOError where another has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = os.open(folder / LOG, os.O_RDONLY)
        self._own = os.open(folder / _BEATS, os.O_RDONLY)
        if not _lock(self._own):
            self._let_go()
            raise BlockingIOError(f"{folder} is another process's")

    def rename(self, beginning: str) -> None:
        """Give the folder's name another beginning. Raises OSError."""
        renamed = self.folder.with_name(beginning + self.folder.name.partition("-")[2])
        os.rename(self.folder, renamed)
        self.folder = renamed

    def beat(self) -> None:
        """Say that the trial goes on."""
        with contextlib.suppress(OSError):
            os.utime(self.folder / _BEATS)

    def wait(self, seconds: float) -> bool:
        """Wait for processes that the trial has forked to end. Whether they have."""
        end = time.monotonic() + seconds
        while not _lock(self._log):
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def close(self) -> None:
        """The trial is undone: remove the folder, and those above that are empty."""
        # The lock goes last: nobody takes a folder that is half removed for a trial left behind.
        shutil.rmtree(self.folder, ignore_errors=True)
        for above in (self.folder.parent, self.folder.parent.parent):
            with contextlib.suppress(OSError):
                # Fails where another trial's folder lies in it, as it should.
                above.rmdir()
        self._let_go()

    def settle(self) -> Path:
        """Leave the folder to the user, where nobody takes it for a trial any more. Gives where it lies."""
        with contextlib.suppress(OSError):
            self.rename(_SETTLED)
        self._let_go()
        return self.folder

    def _let_go(self) -> None:
        os.close(self._log)
        os.close(self._own)


def left_behind() -> Iterator[tuple[Held, float]]:
    """Trials of this user that nobody holds any more, in this process's hands, each with when it was last heard of."""
    for root in _roots():
        if not _is_own(root):
            continue
        for folder in sorted(root.glob(f"{_BEGINS}*")):
            try:
                last = (folder / _BEATS).stat().st_mtime
                # Where locks are known, one that can be had proves that nobody holds the folder.
                if time.time() - last > _STALE or _knows_locks(folder):
                    yield Held(folder), last
            except OSError:
                continue


def _is_own(root: Path) -> bool:
    """Whether a folder is this user's: in one that all may write to others could have laid a log."""
    try:
        return not hasattr(os, "getuid") or root.stat().st_uid == os.getuid()
    except OSError:
        return False


def _lock(stream: int) -> bool:
    """Have a file alone. Whether that could be had; where no locks are known it could."""
    try:
        import fcntl

        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return True
    return True


def _knows_locks(folder: Path) -> bool:
    stream = os.open(folder / LOG, os.O_RDONLY)
    try:
        import fcntl

        fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return False
    finally:
        os.close(stream)
    return True
