"""Interpreters that start with torch imported: most of a short program's time is spent on importing it.

A server imports torch once and forks for each program; what is forked is set up as the interpreter would set itself up
(`sys.argv`, `sys.path`, `__main__`, folder, environment, standard streams) and ends as it would. `Warm.interpreter` is
an executable that takes a program as `python FILE ARGS...` or `python -m MODULE ARGS...` does, has it forked, passes on
its exit status or signal, and takes it along when it is killed; with any other command line it becomes the real
interpreter. torchvet is run by the real interpreter, and told that `Warm.interpreter` is the one that it starts
observed programs with: command line, supervisor and bootstrap are the real ones.

Linux only (`os.pidfd_open`); elsewhere every program gets an interpreter of its own.
"""

from __future__ import annotations

import array
import atexit
import importlib
import importlib.machinery
import json
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from casebook.program import environment

IMPORTED = ("torch", "torch._dynamo")
"""What a server has imported. Any optimizer's first step imports `torch._dynamo`."""

SERVER = """
from casebook import warm
job = warm.serve({address!r})
if job is not None:
    try:
        job.load()
        job.run_module(job.module, True) if job.code is None else exec(job.code, job.names)
        job.ending.status = 0
    except BaseException as error:
        job.ending.by(error)
        raise
"""
"""The frames below a forked program are these, of a file called `<string>`, as generated code has."""

CLIENT = """#!{python} -IS
import array, json, os, signal, socket, sys

words = sys.argv[1:]
if not words or (words[0].startswith("-") and (words[0] != "-m" or len(words) < 2)):
    os.execv({python!r}, [{python!r}, *words])
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
streams = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
server.sendmsg([b"."], streams)
server.sendall(json.dumps([os.getcwd(), dict(os.environ), words]).encode() + b"\\n")
said = server.makefile().readline()
status = int(said) if said else 1
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), -status)
sys.exit(status)
"""

TOOL = """
import runpy, sys
sys.executable = {interpreter!r}
sys.argv[0] = "torchvet"
runpy.run_module("torchvet", run_name="__main__", alter_sys=True)
"""


class Ending:
    """Leaves the process when its exit handlers have run.

    Taking down all that torch has imported takes longer than a short program runs. What destructors would say at that
    time is not heard; where a signal is to end the process the interpreter does it.
    """

    def __init__(self) -> None:
        self.status: int | None = 1
        self.leave = os._exit
        atexit.register(self)  # the first to be registered here is the last to be called

    def by(self, error: BaseException) -> None:
        """The program ends by an exception."""
        code = error.code if isinstance(error, SystemExit) else 1
        status = 0 if code is None else code & 0xFF if isinstance(code, int) else 1
        self.status = None if isinstance(error, KeyboardInterrupt) else status

    def __call__(self) -> None:
        """All other exit handlers have run."""
        if self.status is None:
            return
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        self.leave(self.status)


class Job:
    """What a forked process is to do: a script's `code` in `names`, or a module by `run_module`."""

    def __init__(self, words: list[str]) -> None:
        self.module = ""
        self.code: Any = None
        self.run_module: Any = importlib.import_module("runpy")._run_module_as_main
        self.ending = Ending()
        main = sys.modules["__main__"] = ModuleType("__main__")
        self.names = vars(main)
        self.names["__builtins__"] = __builtins__
        sys.orig_argv[1:] = words
        if words[0] == "-m":
            sys.argv[:] = ["-m", *words[2:]]
            sys.path[0] = os.getcwd()
            self.module = words[1]
        else:
            sys.argv[:] = words
            script = os.path.abspath(words[0])
            sys.path[0] = os.path.dirname(os.path.realpath(script))
            self.names.update(__file__=script, __loader__=importlib.machinery.SourceFileLoader("__main__", script))

    def load(self) -> None:
        """Compile a script. Raises what the interpreter would."""
        if not self.module:
            script = self.names["__file__"]
            self.code = compile(Path(script).read_bytes(), script, "exec", dont_inherit=True)


def serve(address: str) -> Job | None:
    """Listen until standard input ends. Returns None then, and in each forked process what it is to do."""
    for name in IMPORTED:
        importlib.import_module(name)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    print("ready", flush=True)
    waiting = selectors.DefaultSelector()
    waiting.register(sys.stdin.fileno(), selectors.EVENT_READ)
    waiting.register(listening, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is listening:
                client, _ = listening.accept()
                job = _start(client, waiting)
                if job is not None:
                    return job
            elif isinstance(key.data, _Forked):
                key.data.ended(waiting)
            else:
                return None


class _Forked:
    """A forked process and the client that waits for it."""

    def __init__(self, pid: int, client: socket.socket) -> None:
        self.pid, self.client, self.handle = pid, client, os.pidfd_open(pid)

    def ended(self, waiting: selectors.BaseSelector) -> None:
        """The process has ended, or its client has: then it must."""
        status = os.waitpid(self.pid, os.WNOHANG)
        if status[0] == 0:
            os.kill(self.pid, signal.SIGKILL)
            status = os.waitpid(self.pid, 0)
        for ours in (self.handle, self.client):
            waiting.unregister(ours)
        try:
            self.client.sendall(f"{os.waitstatus_to_exitcode(status[1])}\n".encode())
        except OSError:
            pass
        self.client.close()
        os.close(self.handle)


def _start(client: socket.socket, waiting: selectors.BaseSelector) -> Job | None:
    """Fork for a client. In the new process gives its job."""
    streams = array.array("i")
    _, control, _, _ = client.recvmsg(1, socket.CMSG_SPACE(3 * streams.itemsize))
    if not control:
        client.close()
        return None
    streams.frombytes(control[0][2][: 3 * streams.itemsize])
    with client.makefile() as told:
        folder, environ, words = json.loads(told.readline())
    pid = os.fork()
    if pid:
        for stream in streams:
            os.close(stream)
        forked = _Forked(pid, client)
        waiting.register(forked.handle, selectors.EVENT_READ, forked)
        waiting.register(client, selectors.EVENT_READ, forked)
        return None
    # The server's descriptors are no concern of the program's. Each is closed by its owner, lest that close it again.
    for key in list(waiting.get_map().values()):
        if isinstance(key.fileobj, socket.socket):
            key.fileobj.close()
        elif key.fd > 2:
            os.close(key.fd)
    waiting.close()
    client.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    random.seed()
    # Nor are the server's modules: torchvet would take their text for the program's.
    for name in [n for n in sys.modules if n.partition(".")[0] == "casebook"]:
        del sys.modules[name]
    return Job(words)


class Warm:
    """A server and its interpreter; a context manager."""

    def __init__(self, python: str = sys.executable) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="casebook-")
        address = str(Path(self._folder.name, "socket"))
        self.interpreter = str(Path(self._folder.name, "python"))
        Path(self.interpreter).write_text(CLIENT.format(python=python, address=address))
        Path(self.interpreter).chmod(0o755)
        self._server = subprocess.Popen(
            [python, "-c", SERVER.format(address=address)],
            env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._server.stdout is not None
        if self._server.stdout.readline() != "ready\n":
            raise RuntimeError("the server of warm interpreters did not start")

    @property
    def torchvet(self) -> list[str]:
        """The command of torchvet that observes programs in warm interpreters."""
        return [sys.executable, "-c", TOOL.format(interpreter=self.interpreter)]

    def close(self) -> None:
        """End the server."""
        self._server.communicate()
        self._folder.cleanup()


@contextmanager
def interpreters(warm: bool = True, python: str = sys.executable) -> Iterator[Warm | None]:
    """Warm interpreters of a Python for a while; None where they are not wanted or cannot be had."""
    if not warm or not hasattr(os, "pidfd_open"):
        yield None
        return
    server = Warm(python)
    try:
        yield server
    finally:
        server.close()
