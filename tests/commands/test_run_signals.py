"""Signals and sudden ends: they reach the program once, the report still comes, a shell sees the program's status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from observing import Bench

linux = pytest.mark.skipif(sys.platform != "linux", reason="uses /proc and PR_SET_PDEATHSIG")

SLEEP = """
    import os, time
    print("ready", os.getpid(), flush=True)
    time.sleep(60)
"""
COUNT = """
    import os, signal, time
    got = []
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGQUIT"):
        signal.signal(getattr(signal, name), lambda n, f: got.append(signal.Signals(n).name))
    print("ready", os.getpid(), flush=True)
    end = time.monotonic() + 100
    while not got and time.monotonic() < end:
        time.sleep(0.05)
    end = time.monotonic() + 0.7  # for another that should not come
    while time.monotonic() < end:
        time.sleep(0.05)
    print(got, flush=True)
"""


def ready(process: subprocess.Popen[str]) -> int:
    """Wait until the program runs; gives its process number."""
    assert process.stdout is not None
    word, pid = process.stdout.readline().split()
    assert word == "ready"
    time.sleep(0.2)  # on to the program's next line
    return int(pid)


def observe(bench: Bench, *options: str, **more: Any) -> subprocess.Popen[str]:
    return bench.start(bench.command("run", "--quiet", "-o", "report.json", *options, "program.py"), **more)


def end_of(process: subprocess.Popen[str]) -> tuple[str, str, int]:
    out, err = process.communicate(timeout=110)
    return out, err, process.returncode


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL", "SIGSEGV", "SIGUSR1"])
@pytest.mark.parametrize("target", ["program", "supervisor"])
def test_a_fatal_signal_is_the_end_of_both(bench: Bench, name: str, target: str) -> None:
    if target == "supervisor" and name in ("SIGKILL", "SIGSEGV"):
        pytest.skip("that kills torchvet itself: see below")
    number = getattr(signal, name)
    bench.write("program.py", SLEEP)
    with bench.start([sys.executable, "program.py"]) as plain:
        os.kill(ready(plain), number)
        _, err, status = end_of(plain)
    with observe(bench) as process:
        pid = ready(process)
        os.kill(pid if target == "program" else process.pid, number)
        assert end_of(process)[1:] == (err, status) == (err, -number)
    assert bench.facts["how"] == ("interrupt" if name == "SIGINT" else "killed")
    assert (bench.facts["status"], bench.facts["outcomes"]) == (-number, 1)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGQUIT"])
def test_a_signal_sent_to_torchvet_reaches_a_program_that_handles_it_once(bench: Bench, name: str) -> None:
    bench.write("program.py", COUNT)
    with observe(bench) as process:
        ready(process)
        process.send_signal(getattr(signal, name))
        assert end_of(process) == (f"['{name}']\n", "", 0)
    assert bench.facts["how"] == "finished"


def ignore() -> None:
    """As `nohup`, and a shell that starts a job in the background."""
    for name in ("SIGINT", "SIGHUP", "SIGQUIT"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)


def test_an_ignored_signal_stays_ignored(bench: Bench) -> None:
    bench.write("program.py", "import signal; print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGHUP))")
    assert bench.same("program.py", preexec_fn=ignore).out in ("1 1\n", "Handlers.SIG_IGN Handlers.SIG_IGN\n")


def test_a_terminal_that_closes_ends_neither_under_nohup(bench: Bench) -> None:
    """The whole group is told, then torchvet alone; the program goes on to its end, and the report comes."""
    bench.write(
        "program.py",
        """
        import os, time
        print("ready", os.getpid(), flush=True)
        end = time.monotonic() + 100
        while not os.path.exists("go on") and time.monotonic() < end:
            time.sleep(0.05)
        print("done")
        """,
    )
    with observe(bench, preexec_fn=lambda: (os.setsid(), ignore())) as process:
        ready(process)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            os.killpg(process.pid, number)
            process.send_signal(number)
        time.sleep(0.2)
        (bench.folder / "go on").touch()
        assert end_of(process) == ("done\n", "", 0)
    assert (bench.facts["how"], bench.facts["status"], bench.facts["outcomes"]) == ("finished", 0, 1)


def test_a_handler_of_the_program_s_own_is_heard_where_the_signal_was_ignored(bench: Bench) -> None:
    bench.write("program.py", COUNT)
    with observe(bench, preexec_fn=lambda: (os.setsid(), ignore())) as process:
        ready(process)
        os.killpg(process.pid, signal.SIGINT)
        assert end_of(process) == ("['SIGINT']\n", "", 0)


def test_programs_of_these_tests_start_with_default_dispositions() -> None:
    text = """
        import signal, subprocess, sys
        from dispositions import default_in_children
        default_in_children()
        signal.raise_signal(signal.SIGHUP)
        print(subprocess.check_output([sys.executable, "-c", sys.argv[1]], text=True))
    """
    shown = "import signal; print([signal.getsignal(s).__class__.__name__ for s in (1, 2, 3)])"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), shown],
        cwd=Path(__file__).parents[1],
        preexec_fn=ignore,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "['Handlers', 'builtin_function_or_method', 'Handlers']", "SIG_DFL and Ctrl-C's"
    plain = subprocess.run(
        [sys.executable, "-c", "import signal; print(signal.getsignal(1) == 0)"], capture_output=True
    )
    assert plain.stdout == b"True\n", "whatever started the tests themselves"


def test_the_program_has_the_usual_handlers_and_mask(bench: Bench) -> None:
    bench.write(
        "program.py",
        """
        import signal
        print({s.name: str(signal.getsignal(s)).split(" at ")[0] for s in signal.valid_signals() if hasattr(s, "name")})
        print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        """,
    )
    bench.same("program.py")


def in_terminal(bench: Bench, command: list[str], keys: bytes, stdout: Any = None) -> tuple[str, int]:
    """Run in a terminal of its own, press keys once the program is ready; what was shown, and the status."""
    import fcntl
    import pty
    import termios

    master, slave = pty.openpty()

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    streams = {"stdin": slave, "stdout": slave if stdout is None else stdout, "stderr": slave}
    with bench.start(command, preexec_fn=own_terminal, **streams) as process:
        os.close(slave)
        shown = b""
        while chunk := _read(master):
            shown += chunk
            if b"ready" in shown and keys:
                os.write(master, keys)
                keys = b""
        os.close(master)
        return shown.decode(), process.wait(30)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # the last process has closed the terminal
        return b""


@pytest.mark.parametrize(("key", "name"), [(b"\x03", "SIGINT"), (b"\x1c", "SIGQUIT")])
def test_a_key_in_the_terminal_reaches_the_program_once(bench: Bench, key: bytes, name: str) -> None:
    bench.write("program.py", COUNT)
    shown, status = in_terminal(bench, bench.command("run", "-q", "-o", "report.json", "program.py"), key)
    assert (f"['{name}']" in shown, status) == (True, 0)
    assert bench.facts["how"] == "finished"


def test_ctrl_c_ends_the_program_and_the_report_comes(bench: Bench) -> None:
    bench.write("program.py", SLEEP)
    plain, plain_status = in_terminal(bench, [sys.executable, "program.py"], b"\x03")
    shown, status = in_terminal(bench, bench.command("run", "-o", "report.json", "program.py"), b"\x03")
    assert status == plain_status == -signal.SIGINT
    assert shown.count("KeyboardInterrupt") == plain.count("KeyboardInterrupt") == 1
    assert bench.facts["how"] == "interrupt"


def test_a_second_ctrl_c_ends_a_long_diagnosis(bench: Bench) -> None:
    bench.write("program.py", "print('ready 1', flush=True)")
    with observe(bench, env={"TEST_VERDICT": "slow", "TMPDIR": str(bench.folder)}) as process:
        ready(process)
        while not (bench.folder / "diagnosing").exists():
            time.sleep(0.02)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err, status = end_of(process)
        assert (err.strip(), status) == ("", -signal.SIGINT)
    assert time.monotonic() - began < 50  # it would have taken a minute
    assert not list(bench.folder.glob("torchvet-*"))


@linux
def test_the_program_does_not_outlive_a_killed_torchvet(bench: Bench) -> None:
    bench.write("program.py", SLEEP)
    with observe(bench, env={"TMPDIR": str(bench.folder)}) as process:
        pid = ready(process)
        process.kill()
        end_of(process)
    for _ in range(600):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the program still runs")


@pytest.mark.parametrize(
    ("text", "how", "status"),
    [
        ("import os; os._exit(9)", "os-exit", 9),
        ("import os; os._exit(0)", "os-exit", 0),
        ("import os, posix; posix._exit(8)", "os-exit", 8),
        ("import os, sys; sys.excepthook = lambda *a: os._exit(4)\n1 / 0", "exception", 4),
        ("import os, threading; t = threading.Thread(target=os._exit, args=(6,)); t.start(); t.join()", "os-exit", 6),
        ("import os; os.abort()", "killed", -signal.SIGABRT),
        ("import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'print(1); exit(5)'])", "os-exit", 5),
        ("import ctypes; ctypes.string_at(0)", "killed", -signal.SIGSEGV),
    ],
)
def test_sudden_ends(bench: Bench, text: str, how: str, status: int) -> None:
    bench.write("program.py", text + "\n")
    assert bench.same("program.py").status == status
    assert (bench.facts["how"], bench.facts["outcomes"]) == (how, 1)


def test_a_torn_last_line_is_left_alone(bench: Bench) -> None:
    bench.write(
        "program.py",
        """
        import glob, os, posix
        with open(glob.glob("kept.vet/rank0.jsonl")[0], "ab") as file:
            file.write(b'{"k":"step","n":')
        posix._exit(3)
        """,
    )
    assert bench.observed("--record", "kept.vet", "program.py").status == 3
    assert (bench.facts["how"], bench.facts["damaged"], bench.facts["kept"]) == ("os-exit", 1, True)


PROGRESS = """
    import sys, time, torch
    for _ in range(40):
        torch.step()
        time.sleep(0.05)
    print("ready 1", file=sys.stderr)
"""


def test_progress_is_shown_on_a_terminal_and_taken_away(bench: Bench) -> None:
    bench.write("program.py", PROGRESS)
    with open(bench.folder / "out.txt", "w") as out:
        shown, status = in_terminal(bench, bench.command("run", "program.py"), b"", stdout=out)
    assert status == 0
    assert "torchvet: step " in shown
    assert shown.endswith("\r\x1b[K")
    shown, _ = in_terminal(bench, bench.command("run", "program.py"), b"")
    assert "torchvet: step" not in shown  # the program writes to the same terminal
    with open(bench.folder / "out.txt", "w") as out:
        shown, _ = in_terminal(bench, bench.command("run", "--quiet", "program.py"), b"", stdout=out)
    assert "torchvet" not in shown


def test_how_a_program_ended_is_seen_while_its_frames_live(bench: Bench) -> None:
    for end, how in [
        ("raise ValueError", "exception"),
        ("raise MemoryError", "out-of-memory"),
        ("raise type('OutOfMemoryError', (RuntimeError,), {})", "out-of-memory"),
        ("raise RuntimeError('DefaultCPUAllocator: can\\'t allocate memory')", "out-of-memory"),
        ("raise SystemExit(3)", "exit"),
        ("raise KeyboardInterrupt", "interrupt"),
    ]:
        bench.write("program.py", f"def main():\n    alive_here = 1\n    {end}\nmain()\n")
        bench.same("program.py")
        assert bench.facts["how"] == how
        assert bench.facts["error"].endswith("alive_here")
    bench.write("program.py", "try:\n    raise MemoryError\nexcept MemoryError as e:\n    raise RuntimeError from e\n")
    bench.same("program.py")
    assert bench.facts["how"] == "out-of-memory"
