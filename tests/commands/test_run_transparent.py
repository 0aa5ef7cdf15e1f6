"""A program runs under `torchvet run` exactly as it runs alone: output, errors, status, and all that it can see."""

from __future__ import annotations

import os
import sys
import zipfile

import pytest
from observing import Bench

SHOW = """
    import sys
    names = {k: v for k, v in sorted(globals().items()) if k not in ("sys", "__loader__", "__spec__")}
    print(names, type(__loader__), getattr(__spec__, "name", None))
    print(sys.argv, sys.path[0], sys.orig_argv, sys.flags)
    print(sys.modules["__main__"].__dict__ is globals(), __name__)
"""


def test_a_script_sees_what_it_sees_alone(bench: Bench) -> None:
    bench.write("sub/show.py", SHOW)
    bench.same("sub/show.py", "--epochs", "1", "-o", "x", "--", "--steps")
    bench.same("./sub/../sub/show.py")
    assert bench.facts["argv"] == ["./sub/../sub/show.py"]


def test_a_symbolic_link_imports_from_its_target(bench: Bench) -> None:
    bench.write("real/show.py", SHOW + "    import beside\n")
    bench.write("real/beside.py", "print('beside')")
    (bench.folder / "link.py").symlink_to("real/show.py")
    assert "beside" in bench.same("link.py").out
    assert bench.facts["user_root"] == [str(bench.folder / "real")]


@pytest.mark.parametrize("flags", [("-O",), ("-X", "dev"), ("-W", "error"), ("-s",), ("-u", "-B"), ("-Wd",)])
def test_interpreter_options_reach_the_program(bench: Bench, flags: tuple[str, ...]) -> None:
    bench.write("show.py", SHOW)
    assert bench.same("show.py", flags=flags).status == 0


def test_a_package_and_a_module_in_it(bench: Bench) -> None:
    bench.write("pkg/__init__.py", "print('package', __name__)")
    bench.write("pkg/__main__.py", "from . import part\n" + SHOW.replace("\n    ", "\n"))
    bench.write("pkg/part.py", "print('part', __package__)\n" + SHOW.replace("\n    ", "\n"))
    bench.same("-m", "pkg", "--steps", "3", "-o", "x")
    bench.same("-m", "pkg.part", "--", "-m")
    assert bench.facts["argv"] == ["-m", "pkg.part", "--", "-m"]


def test_a_folder_and_an_archive(bench: Bench) -> None:
    bench.write("app/__main__.py", SHOW + "    import helper\n")
    bench.write("app/helper.py", "print('helper', __file__)")
    bench.same("app", "a")
    with zipfile.ZipFile(bench.folder / "app.zip", "w") as archive:
        for name in ("__main__.py", "helper.py"):
            archive.write(bench.folder / "app" / name, name)
    bench.same("app.zip", "b")


def test_compiled_code(bench: Bench) -> None:
    bench.write("show.py", SHOW)
    bench.plain("-c", "import py_compile; py_compile.compile('show.py', 'show.pyc')")
    assert "SourcelessFileLoader" in bench.same("show.pyc").out


def test_source_encodings_docstrings_and_future_flags(bench: Bench) -> None:
    (bench.folder / "latin.py").write_bytes(
        b'# -*- coding: latin-1 -*-\n"""Doc\xe9."""\nprint(ascii("\xe9"), __doc__)\n'
    )
    bench.same("latin.py", env={"PYTHONIOENCODING": "utf-8"})
    (bench.folder / "bom.py").write_bytes(b"\xef\xbb\xbfprint('bom')\r\n")
    bench.same("bom.py")
    bench.write("future.py", "def f(x: undefined_name): pass\n")
    assert "NameError" in bench.same("future.py").err or sys.version_info >= (3, 14)


def test_nothing_is_added_to_the_environment_or_left_in_the_way(bench: Bench) -> None:
    bench.write("env.py", "import os; print(sorted(os.environ.items())); print(sorted(os.listdir('.')))")
    bench.same("env.py")
    bench.write("queue.py", "print('my queue')")
    bench.write("json/__init__.py", "print('my json')")
    bench.write("shadow.py", "import queue, json; print(queue.__file__, json.__file__)")
    assert "my json" in bench.same("shadow.py").out


def test_torch_is_imported_by_the_program_only(bench: Bench) -> None:
    bench.write(
        "late.py",
        """
        import sys
        print("torch" in sys.modules, any(m.startswith("torch.") for m in sys.modules))
        import importlib.util
        print(importlib.util.find_spec("torch").loader.__class__)
        before = len(sys.meta_path)
        import torch
        print(torch.__spec__.name, torch.__spec__.origin, type(torch.__loader__), vars(torch.__loader__).keys())
        print(torch.__spec__.loader is torch.__loader__)
        """,
    )
    assert "False False" in bench.same("late.py").out


def test_standard_input_belongs_to_the_program(bench: Bench) -> None:
    bench.write("ask.py", "import sys\nprint(input('name? '), sys.stdin.read())")
    assert bench.same("ask.py", stdin="ada\nmore\n").out == "name? ada more\n\n"
    bench.write("debug.py", "def f():\n    x = 41\n    breakpoint()\n    print(x)\nf()\n")
    assert "41" in bench.same("debug.py", stdin="p x\nc\n").out


def test_warnings_read_as_they_do_alone(bench: Bench) -> None:
    bench.write(
        "warn.py",
        """
        import warnings
        def f(level):
            warnings.warn(f"level {level}", stacklevel=level)
        for level in (1, 2, 3, 9):
            f(level)
        assert (1, "always true")
        """,
    )
    bench.write("pkg/__main__.py", "import warn")
    assert "sys" in bench.same("warn.py").err
    bench.same("-m", "pkg")


CRASHES = {
    "plain": "def f():\n    raise ValueError('x')\nf()",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e",
    "context": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    [][1]",
    "syntax": "exec('1 +')",
    "import": "import nonexistent_thing",
    "memory": "raise MemoryError",
    "recursion": "import sys\nsys.setrecursionlimit(100)\ndef f(): f()\n"
    "try:\n    f()\nexcept RecursionError:\n    raise ValueError('deep')",
    "excepthook": "import sys\nsys.excepthook = lambda *a: print('mine', a[0], a[2].tb_frame.f_code.co_name)\n1 / 0",
    "broken excepthook": "import sys\ndef hook(*a):\n    raise KeyError('hook')\nsys.excepthook = hook\n1 / 0",
    "no excepthook": "import sys\ndel sys.excepthook\n1 / 0",
    "none excepthook": "import sys\nsys.excepthook = None\n1 / 0",
    "exiting excepthook": "import sys\nsys.excepthook = lambda *a: sys.exit(7)\n1 / 0",
    "last": "import atexit, sys, traceback\n"
    "atexit.register(lambda: traceback.print_tb(sys.last_traceback))\n"
    "atexit.register(lambda: print(sys.last_type, sys.last_value, sys.excepthook is sys.__excepthook__))\n1 / 0",
    "exit 0": "raise SystemExit",
    "exit 3": "import sys; sys.exit(3)",
    "exit 300": "import sys; sys.exit(300)",
    "exit -1": "import sys; sys.exit(-1)",
    "exit text": "import sys; sys.exit('sorry')",
    "exit object": "import sys; sys.exit(['a', 2])",
    "exit true": "import sys; sys.exit(True)",
    "group": "raise ExceptionGroup('g', [ValueError(1), KeyError(2)])" if sys.version_info >= (3, 11) else "0/0",
    "custom base": "class Stop(BaseException): pass\nraise Stop('now')",
    "generator exit": "raise GeneratorExit",
    "interrupt": "raise KeyboardInterrupt",
    "thread": "import threading, sys\nt = threading.Thread(target=lambda: 1 / 0, name='w')\nt.start(); t.join()\n"
    "u = threading.Thread(target=lambda: sys.exit(5))\nu.start(); u.join()",
}


@pytest.mark.parametrize("name", CRASHES)
def test_the_end_of_a_script(bench: Bench, name: str) -> None:
    bench.write("program.py", CRASHES[name] + "\n")
    bench.same("program.py")


@pytest.mark.parametrize("name", ["plain", "exit text", "interrupt", "excepthook", "import"])
def test_the_end_of_a_module(bench: Bench, name: str) -> None:
    bench.write("pkg/program.py", CRASHES[name] + "\n")
    bench.same("-m", "pkg.program")


def test_a_package_that_fails_as_it_is_imported(bench: Bench) -> None:
    bench.write("pkg/__init__.py", "1 / 0")
    bench.write("pkg/__main__.py", "print('never')")
    ran = bench.same("-m", "pkg")
    assert ran.status == 1 and "ZeroDivisionError" in ran.err


ORDER = """
    import atexit, threading, time, sys
    class Noisy:
        def __init__(self, name): self.name = name
        def __del__(self): print("del", self.name, flush=True)
    keep = Noisy("global")
    atexit.register(print, "atexit 1", flush=True)
    def work():
        while threading.main_thread().is_alive():
            time.sleep(0.01)
        print("thread done", flush=True)
        atexit.register(print, "atexit of thread", flush=True)
    def main():
        local = Noisy("local")
        threading.Thread(target=work).start()
        {end}
    main()
    atexit.register(print, "atexit 2", flush=True)
"""


@pytest.mark.parametrize("end", ["pass", "sys.exit(4)", "1 / 0"])
def test_threads_exit_handlers_and_destructors_in_their_order(bench: Bench, end: str) -> None:
    bench.write("order.py", ORDER.format(end=end))
    assert "thread done" in bench.same("order.py").out


def test_a_thread_that_waits_for_the_frames_of_main(bench: Bench) -> None:
    bench.write(
        "waits.py",
        """
        import sys, threading, time, weakref
        class Owner: pass
        def main():
            owner = Owner()
            seen = weakref.ref(owner)
            def work():
                while seen() is not None: time.sleep(0.01)
                print("owner gone")
            threading.Thread(target=work).start()
            sys.exit(2)
        main()
        """,
    )
    assert bench.same("waits.py").out == "owner gone\n"


MULTI = """
    import multiprocessing as mp, sys, os
    class Thing:
        def __init__(self, x): self.x = x
    def work(thing):
        return type(thing).__module__, thing.x * 2, __name__, sys.argv
    if __name__ == "__main__":
        with mp.get_context({method!r}).Pool(2) as pool:
            print(pool.map(work, [Thing(1), Thing(2)]))
        import pickle
        print(pickle.loads(pickle.dumps(Thing(3))).x)
        {extra}
"""


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_multiprocessing(bench: Bench, method: str) -> None:
    bench.write("pkg/multi.py", MULTI.format(method=method, extra="sys.exit(3)"))
    assert bench.same("pkg/multi.py", "a").status == 3
    assert bench.same("-m", "pkg.multi", "b").status == 3
    assert bench.facts["outcomes"] == 1


def test_children_of_fork_leave_the_recording_alone(bench: Bench) -> None:
    bench.write(
        "forks.py",
        """
        import os, sys
        ends = [lambda: os._exit(5), lambda: sys.exit(6), lambda: 1 / 0, lambda: None]
        for end in ends:
            pid = os.fork()
            if pid == 0:
                end()
                break
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        """,
    )
    bench.same("forks.py")
    assert (bench.facts["how"], bench.facts["outcomes"]) == ("finished", 1)


def test_descriptors_are_inherited(bench: Bench) -> None:
    bench.write("write.py", "import os, sys; os.write(int(sys.argv[1]), b'through')")
    outputs = []
    for run in (bench.plain, bench.observed):
        receive, send = os.pipe()
        run("write.py", str(send), pass_fds=(send,))
        os.close(send)
        outputs.append(os.read(receive, 99))
        os.close(receive)
    assert outputs == [b"through", b"through"]


def test_arguments_that_are_long_or_no_text(bench: Bench) -> None:
    bench.write("args.py", "import sys; print(len(sys.argv), ascii(sys.argv[1]), len(sys.argv[-1]))")
    bench.same("args.py", "caf\udce9", *["x" * 1000] * 500)
