"""Follows the processes that an observed program starts: each that trains gets a record of its own.

A process that is started costs next to nothing until it trains: four functions of torch's wait in it for the first
optimizer, backward pass or model in DistributedDataParallel, and put the probes in. Loader workers, which have none,
are never observed. The ranks that a launcher starts will train, and are observed from the beginning. Followed are
forks, `multiprocessing`'s processes however they are started, and Python programs that `subprocess` starts with this
interpreter (`torchrun`, `accelerate launch`). No process waits for another.

This module imports nothing but the standard library: it is loaded where a process starts.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from types import ModuleType
from typing import Any

from torchvet.probes.session.import_hook import when_imported

_HERE = os.path.dirname(os.path.abspath(__file__))

_config: dict[str, Any] | None = None
"""How to observe a process that trains; None where none is to be followed."""
_unfollowed: Callable[[str], None] | None = None
_ended: Callable[[int, int], None] | None = None
"""Called with the number and the exit status of a process of this interpreter that has ended."""
_sleeper: _Sleep | None = None
"""Waits in a process that is followed and has not trained yet."""
_spared = False
"""Whether the next fork is torchvet's own."""


def lead(
    options: dict[str, Any],
    directory: str,
    rank: int,
    unfollowed: Callable[[str], None],
    ended: Callable[[int, int], None],
) -> None:
    """This process is observed: have what it starts followed, with these options of the session. `unfollowed` gets
    commands that are not, `ended` the number and the exit status (-N for signal N) of a process that has ended."""
    global _config, _unfollowed, _ended
    _unfollowed, _ended = unfollowed, ended
    # The folder that `torchvet` is imported from. The child's own path may lack it.
    source = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
    _config = {"options": options, "directory": directory, "rank": rank, "import_from": source}
    # A child of another Python cannot load this installation's compiled dependencies.
    _config["python"] = list(sys.version_info[:2])
    # What a rank starts has the rank's environment, and is none.
    _config["launches"] = not _is_rank()
    _tap_starts()


def notice(unfollowed: Callable[[str], None]) -> None:
    """This process is a trial: what it starts is not observed, and `unfollowed` gets its commands."""
    global _unfollowed
    _unfollowed = unfollowed
    _tap_starts()


def follow(config: dict[str, Any]) -> None:
    """This process was started by an observed one: observe it once it trains, a launcher's rank at once."""
    global _config
    # A launcher's own children are ranks; what a rank starts inherits RANK and is none.
    launched = config.get("launches", False) and _is_rank()
    _config = {**config, "launches": config.get("launches", False) and not launched}
    _tap_starts()
    if launched:
        _wake()
    else:
        # A process that never imports torch pays for this one hook.
        when_imported("torch", _sleep)


def _is_rank() -> bool:
    """Whether a launcher has said that this process is one of several ranks."""
    return "RANK" in os.environ and os.environ.get("WORLD_SIZE", "1") not in ("", "1")


def forked() -> None:
    """This process was forked from an observed one, whose probes are off: observe it once it trains."""
    torch = sys.modules.get("torch")
    # Without torch in `sys.modules` the hook of `when_imported` is inherited, and waits in the child as well.
    if _config is not None and not _spared and torch is not None:
        _sleep(torch)


class own_fork:
    """What is forked within is torchvet's own and not followed."""

    def __enter__(self) -> None:
        global _spared
        _spared = True

    def __exit__(self, *_: object) -> None:
        global _spared
        _spared = False


# Starting -------------------------------------------------------------------------------------------------------


def _tap_starts() -> None:
    when_imported("subprocess", _tap_popen)
    when_imported("multiprocessing.util", _tap_spawn)
    for module in ("popen_fork", "popen_forkserver"):
        when_imported(f"multiprocessing.{module}", _tap_polls)
    _tap_shells()


def _tap_popen(subprocess: ModuleType) -> None:
    popen = getattr(subprocess, "Popen", None)
    start = getattr(popen, "__init__", None)
    if start is None or hasattr(start, "__wrapped__"):
        return

    @functools.wraps(start)
    def __init__(self: Any, args: Any, *rest: Any, **options: Any) -> None:
        # `env` is the eleventh argument: whoever passes that many by place is left alone.
        # A shell's command is a text: whether it starts Python cannot be told.
        followed = _config is not None and len(rest) < 10 and not options.get("shell")
        if followed and _is_this_interpreter(args, options.get("executable")):
            # A process that starts unobserved is better than one that does not start.
            with suppress(Exception):
                options["env"] = started_with(options.get("env"))
        else:
            _tell(args)
        start(self, args, *rest, **options)

    # On the class, so that subclasses (`asyncio`'s too) are followed.
    setattr(popen, "__init__", __init__)  # noqa: B010 - a class of the standard library
    _tap_ends(popen)


def _tap_ends(popen: Any) -> None:
    """A process that a signal kills says nothing itself: who had started it knows."""
    # Private, and only on POSIX: without it a killed child ends unnoticed, all else works.
    noted = getattr(popen, "_handle_exitstatus", None)
    if noted is None:
        return

    @functools.wraps(noted)
    def _handle_exitstatus(self: Any, *args: Any, **options: Any) -> None:
        noted(self, *args, **options)
        # `returncode` stays None while a process is only stopped.
        if _ended is not None and self.returncode is not None:
            with suppress(Exception):
                _ended(self.pid, self.returncode)

    popen._handle_exitstatus = _handle_exitstatus


def _tap_polls(module: ModuleType) -> None:
    """The same of processes of `multiprocessing`."""
    popen: Any = getattr(module, "Popen", None)
    # The class for spawned processes inherits it.
    poll = getattr(popen, "poll", None)
    if poll is None or hasattr(poll, "__wrapped__"):
        return

    @functools.wraps(poll)
    def polled(self: Any, *args: Any, **options: Any) -> Any:
        before = self.returncode
        found = poll(self, *args, **options)
        if before is None and found is not None and _ended is not None:
            with suppress(Exception):
                _ended(self.pid, found)
        return found

    popen.poll = polled


def _tap_shells() -> None:
    """`os.system`, `os.posix_spawn`: what they start is not followed, and said to be."""
    for name, place in (("system", 0), ("posix_spawn", 1), ("posix_spawnp", 1)):
        start = getattr(os, name, None)
        if start is not None and not hasattr(start, "__wrapped__"):
            setattr(os, name, _telling(start, place))


def _telling(start: Callable[..., Any], place: int) -> Callable[..., Any]:
    @functools.wraps(start)
    def started(*args: Any, **options: Any) -> Any:
        _tell(args[place] if len(args) > place else "")
        return start(*args, **options)

    return started


def _tell(args: Any) -> None:
    if _unfollowed is None:
        return
    with suppress(Exception):
        words = [args] if isinstance(args, (str, bytes, os.PathLike)) else args
        # Names in a command may be bytes of any encoding.
        _unfollowed(" ".join(os.fsdecode(word) for word in words)[:200])


def _is_this_interpreter(args: Any, executable: Any) -> bool:
    """Whether a command runs Python by this interpreter: by its name, or a script that names it."""
    try:
        first = executable or (args if isinstance(args, (str, bytes, os.PathLike)) else args[0])
        # As the system will look it up, but by this process's PATH: one in `env=` is not asked.
        found = shutil.which(os.fsdecode(first))
        if found is None:
            return False
        ours = os.path.abspath(sys.executable)
        if os.path.abspath(found) == ours or _same_environment(found, ours):
            return True
        with open(found, "rb") as stream:
            # A console script (`torchrun`) begins with `#!` and the interpreter's path; kernels read no
            # more than a short first line.
            head = stream.readline(1024)
        return head.startswith(b"#!") and _same_environment(os.fsdecode(head[2:].split()[0]), ours)
    except (OSError, TypeError, IndexError, ValueError):
        return False


def _same_environment(path: str, ours: str) -> bool:
    """Whether two paths are names of one interpreter (`python`, `python3`) in one folder."""
    there, here = os.path.split(os.path.abspath(path)), os.path.split(ours)
    # Virtual environments link to one binary: the folder tells which packages the program sees.
    return there[0] == here[0] and there[1].startswith("python") and os.path.realpath(path) == os.path.realpath(ours)


def started_with(environment: Mapping[Any, Any] | None) -> dict[Any, Any]:
    """The environment with which a Python process starts that is to be followed."""
    found = dict(os.environ if environment is None else environment)
    # A caller that passes on an environment which was prepared already: once is enough.
    if _config is None or "TORCHVET_FOLLOW" in found:
        return found
    before = found.get("PYTHONPATH")
    if before is not None:
        found["TORCHVET_PYTHONPATH"] = before
    # First on the path, so that Python finds this folder's `sitecustomize` and not the user's.
    found["PYTHONPATH"] = os.pathsep.join([_HERE, *([before] if before else [])])
    found["TORCHVET_FOLLOW"] = json.dumps(_config)
    return found


def _tap_spawn(util: ModuleType) -> None:
    # What both spawn and forkserver start their interpreters by. `subprocess` is not involved.
    start = getattr(util, "spawnv_passfds", None)
    if start is None or hasattr(start, "__wrapped__"):
        return

    @functools.wraps(start)
    def spawnv_passfds(path: Any, args: Sequence[Any], passfds: Any) -> Any:
        return start(path, _with_prelude(args), passfds)

    util.spawnv_passfds = spawnv_passfds  # type: ignore[attr-defined]


def _with_prelude(args: Sequence[Any]) -> list[Any]:
    """The arguments of a process of `multiprocessing`, whose code follows us first."""
    words = list(args)
    with suppress(Exception):
        # The resource tracker is started the same way, and must not be followed.
        place = words.index("-c") + 1
        code = words[place]
        if "spawn_main" in code or "forkserver" in code:
            if _config is None:
                _tell("multiprocessing")
            else:
                words[place] = _prelude(_config) + code
    return words


def _prelude(config: dict[str, Any]) -> str:
    text = json.dumps(config)
    path = config["import_from"]
    return (
        # It leaves no name behind, because the code after it runs in the same namespace.
        f"import sys; sys.path.append({path!r}); follow = __import__('torchvet.probes.following', None, None, "
        f"['from_text']).from_text; sys.path.remove({path!r}); follow({text!r}); del follow, sys; "
    )


def from_text(text: str) -> None:
    """As `follow`, for a process that is told in its code. Raises nothing: the program comes first."""
    with suppress(Exception):
        follow(json.loads(text))


# Waking ---------------------------------------------------------------------------------------------------------


class _Sleep:
    """Waits for the first training in a process."""

    def __init__(self, torch: ModuleType) -> None:
        self.asleep = True
        self._torch = torch
        self._undo = ExitStack()
        self._ours: dict[tuple[Any, str], Callable[..., Any]] = {}
        self._routes: dict[tuple[Any, str], Callable[..., Any]] = {}
        """What is called in place of ours from now on by who has kept them."""

    def begin(self) -> None:
        from torchvet.probes.internals.patching import replace

        autograd, optimizer = self._torch.autograd, self._torch.optim.Optimizer
        wrapper = self._torch.nn.parallel.DistributedDataParallel
        made = ((optimizer, "__init__"), (wrapper, "__init__"))
        # The least that all training comes by. A DDP model is made before its first step, which so is seen
        # whole.
        for owner, name in ((autograd, "backward"), (autograd, "grad"), *made):
            ours = self._ours[owner, name] = self._waking((owner, name), owner.__dict__[name])
            replace(self._undo, owner, name, ours)

    def _waking(self, key: tuple[Any, str], original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def first(*args: Any, **kwargs: Any) -> Any:
            # A caller that took the function before (`from torch.autograd import grad`) reaches the
            # probes by this.
            self.wake()
            return self._routes.get(key, original)(*args, **kwargs)

        return first

    def _in_loader_worker(self) -> bool:
        return self._torch.utils.data.get_worker_info() is not None

    def wake(self) -> None:
        """The process trains now; the workers of loaders do not."""
        # A collate function that runs autograd must not have a worker observed.
        if not self.asleep or self._in_loader_worker():
            return
        self.asleep = False
        # Where somebody has wrapped ours, theirs stays: the probes then wrap it, and it goes on to the original.
        ours = [(owner, name) for (owner, name), one in self._ours.items() if owner.__dict__.get(name) is one]
        # First ours out, then the probes in: they must wrap the originals, and not a wrapper that has served.
        self._undo.close()
        _wake()
        self._routes = {(owner, name): owner.__dict__[name] for owner, name in ours}


def _wake() -> None:
    """Observe this process from now on."""
    config = _config
    if config is None:
        return
    # Last, and out again: a child may have its own version of what torchvet imports.
    sys.path.append(config["import_from"])
    try:
        from torchvet.probes.following.child import observe

        observe(config)
    except Exception:  # the program comes first
        if os.environ.get("TORCHVET_DEBUG"):
            raise
    finally:
        sys.path.remove(config["import_from"])


def _sleep(torch: ModuleType) -> None:
    global _sleeper
    _sleeper = _Sleep(torch)
    _sleeper.begin()


def wake() -> None:
    """Somebody is about to observe this process: if it is followed, it is from now on, and not twice."""
    if _sleeper is not None:
        _sleeper.wake()
