"""Writers that raise no audit event, and processes that are spawned, are heard too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from torchvet.undo.folders import new_folder
from torchvet.undo.rollback import roll_back

SOURCE = str(Path(__file__).parents[2] / "src")
BEGIN = """
import sys
sys.path.insert(0, {source!r})
from pathlib import Path
from torchvet.probes.session.undoing import install
if __name__ == "__main__":
    install(Path({folder!r}), (), (".",))
"""
SAFETENSORS = """
def serialize_file(tensors, filename, metadata=None):
    import ctypes
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose(ctypes.c_void_p(libc.fopen(str(filename).encode(), b"w")))
"""
H5F = """
ACC_RDONLY, ACC_RDWR = 0, 1
from safetensors import serialize_file as _write
def create(name, flags=0, fapl=None): _write({}, name.decode())
def open(name, flags=ACC_RDWR, fapl=None): return flags or _write({}, name.decode())
"""
WRITERS = {
    "torch": """
        import torch
        torch.save({"w": torch.ones(3)}, "mine"); torch.save({"w": torch.ones(3)}, "new.pt")
        torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), "mine.2")
        assert torch.load("mine")["w"].sum() == 3 and type(torch._C.PyTorchFileWriter).__name__ == "pybind11_type"
        """,
    "safetensors": """
        from safetensors import serialize_file
        serialize_file({}, "mine"); serialize_file({}, filename="mine.2"); serialize_file({}, "new")
        """,
    "h5py": """
        import h5py.h5f as h5f
        h5f.create(b"mine"); h5f.open(b"mine.2"); h5f.create(b"new")
        """,
    "spawned": """
        import faulthandler, multiprocessing
        faulthandler.dump_traceback_later(60, exit=True)
        def work(name):
            faulthandler.dump_traceback_later(40, exit=True)
            Path(name).write_text("n")
        if __name__ == "__main__":
            for way in ("spawn", "forkserver"):
                for name in ("mine", "mine.2", "new"):
                    process = multiprocessing.get_context(way).Process(target=work, args=(name,))
                    process.start(); process.join(); assert process.exitcode == 0
        """,
}


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins write by libc")
@pytest.mark.parametrize("text", WRITERS.values(), ids=WRITERS)
def test_writers_are_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place, modules = tmp_path / "place", tmp_path / "modules"
    for folder in (place, modules, modules / "h5py"):
        folder.mkdir()
    (modules / "safetensors.py").write_text(SAFETENSORS)
    (modules / "h5py" / "__init__.py").touch()
    (modules / "h5py" / "h5f.py").write_text(H5F)
    for name in ("mine", "mine.2"):
        (place / name).write_text(name)
    held = new_folder()
    program = tmp_path / "program.py"
    program.write_text(BEGIN.format(source=SOURCE, folder=str(held.folder)) + textwrap.dedent(text))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(modules), SOURCE])}
    command = [sys.executable, program]
    # Whoever runs the tests may have blocked signals: a fork server would not hear of children that end.
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, preexec_fn=_unblock)
    assert done.returncode == 0, done.stderr
    assert len(list(place.iterdir())) == 3 and (place / "mine").read_text("latin-1") != "mine"
    undone = roll_back(held.folder)
    held.close()
    assert undone.trouble == []
    assert {p.name: p.read_text() for p in place.iterdir()} == {"mine": "mine", "mine.2": "mine.2"}
