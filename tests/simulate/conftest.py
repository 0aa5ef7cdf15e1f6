"""Tests of the simulated GPU run in children of a process that has one: it cannot be taken out of a process again.

The process is forked from the worker when the first such test comes, starts the simulation once, and forks again for
each test, so that no test sees what another did.
"""

from __future__ import annotations

import importlib
import os
import pickle
import traceback
from multiprocessing.connection import Connection, Pipe
from typing import Any

import pytest
from example_runs import OBSERVING

_parent: Connection | None = None


def _answer(item: Any, arguments: dict[str, Any]) -> tuple[str, str]:
    """How a test went, in a child of this process."""
    import torch

    reader, writer = Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        try:
            torch.default_generator.manual_seed(0)
            item.obj(**arguments)
            writer.send(("passed", ""))
        except pytest.skip.Exception as skipped:
            writer.send(("skipped", str(skipped)))
        except BaseException:
            writer.send(("failed", traceback.format_exc()))
        os._exit(0)
    writer.close()
    try:
        found: tuple[str, str] = reader.recv()
    except EOFError:
        found = ("failed", "the test's process died")
    os.waitpid(child, 0)
    return found


def _serve(connection: Connection, items: dict[str, Any]) -> None:
    """The process that has the GPU: one request a test."""
    try:
        for module in OBSERVING:
            importlib.import_module(module)
        from torchvet.simulate.cards import card_of
        from torchvet.simulate.start import start

        start(card_of("24GiB"), 2)
    except BaseException:
        connection.send(("failed", traceback.format_exc()))
        os._exit(1)
    connection.send(("ready", ""))
    while True:
        try:
            name, arguments = pickle.loads(connection.recv_bytes())
        except EOFError:
            os._exit(0)
        connection.send(_answer(items[name], arguments))


def _server(session: pytest.Session) -> Connection:
    global _parent
    if _parent is None:
        here, there = Pipe()
        items = {item.nodeid: item for item in session.items}
        if os.fork() == 0:
            here.close()
            _serve(there, items)
        there.close()
        state, text = here.recv()
        assert state == "ready", text
        _parent = here
    return _parent


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    """Run the test where the GPU is, unless it is marked `alone`."""
    if pyfuncitem.get_closest_marker("no_gpu") is not None:
        return None
    import torch  # noqa: F401  the server starts with it imported

    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    server = _server(pyfuncitem.session)
    server.send_bytes(pickle.dumps((pyfuncitem.nodeid, arguments)))
    state, text = server.recv()
    if state == "skipped":
        pytest.skip(text)
    if state == "failed":
        pytest.fail(text, pytrace=False)
    return True
