"""The bottom of the observed program's stack: the file that the child interpreter is started with.

The name matters. `warnings` skips frames whose file name contains both "importlib" and "_bootstrap", so that a warning
whose `stacklevel` points above the program's first frame is reported as it is under plain Python, at `sys:1`. For the
same reason everything that stays on the stack while the program runs is in this file, and it is kept short: these
frames are all that tells the program's stack from a plain one (`uncaught.clean` takes them out of tracebacks).

Started as `python [interpreter options] _importlib_bootstrap.py CONFIG [ARGUMENT...]`.
"""

import sys

# Not from `typing`, whose import a bare interpreter has not paid for.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from torchvet.probes.session.launch import Launch


def _prepare() -> "Launch":
    # Before anything is imported: what a bare interpreter has (see `Target.forget_shadowed`).
    known = frozenset(sys.modules)
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        del sys.path[0]  # this file's own folder, put there by the interpreter
    # Only now, with the program's folder not yet on the path: a `json.py` of the user's must not be found.
    import json

    config = json.loads(sys.argv[1])
    sys.path.append(config["import_from"])  # last: it must shadow nothing
    from torchvet.probes.session import launch

    sys.path.pop()
    return launch.prepare(config, sys.argv[2:], known)


def _run() -> None:
    launch = _prepare()
    try:
        if launch.code is not None:
            # The program's module is the real `__main__`: pickling and multiprocessing go by it.
            exec(launch.code, vars(sys.modules["__main__"]))
        else:
            launch.run_module(launch.module, launch.alter_argv)  # runpy's own, for native tracebacks
    # Exits and interrupts end programs too.
    except BaseException as error:
        launch.failed(error)
        raise
    launch.finished()


if __name__ == "__main__":
    _run()
