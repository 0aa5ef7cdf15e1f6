"""What must have run across functions and files, from lines that were seen running."""

from __future__ import annotations

import pytest

from torchvet.source.running import Running

MAIN = """\
import torch
import json
import tools
from tools import build

def load(path):
    return torch.load(path)

def prepare(folder):
    if not folder:
        raise ValueError
    with open(folder) as f:
        names = json.load(f)
    return Data(names)

def resume(net):
    net.restore("last.pt")

def finish(net, quick):
    if quick:
        return
    net.write("last.pt")

class Data:
    def __init__(self, names):
        self.names = names

    def __getitem__(self, index):
        return self.names[index]

def loops(x):
    for one in x:
        again = loops(one)

def slow(net):
    return net.rate

def fast(net):
    return 2 * net.rate

def main(args):
    data = prepare(args.folder)
    net = build(data)
    tools.warm(net)
    if args.resume:
        resume(net)
    for x in data:
        net(x)
    finish(net, args.quick)
    net.report()
    rate = slow(net) if args.slow else args.fast and fast(net)

if __name__ == "__main__":
    main(parse())
"""
TOOLS = """\
def build(data):
    return Net(data)

def warm(net):
    net.use(0)

def other(net):
    net.use(1)

class Net:
    def __init__(self, data):
        self.rows = data.rows

    def restore(self, path):
        self.load_state_dict(torch.load(path))

    def report(self):
        print(self.rows)
"""
SOURCES = {"main.py": MAIN, "tools.py": TOOLS}


def ran(text: str, seen: str = "        net(x)", path: str = "main.py") -> bool:
    """Whether the line with some text must have run, where one line of the main file was seen."""
    number = MAIN.split("\n").index(seen) + 1
    at = next(n for n, found in enumerate(SOURCES[path].split("\n"), start=1) if text in found)
    return Running(SOURCES, {"main.py": {number, MAIN.count("\n")}, "tools.py": set()}).ran(path, at)


@pytest.mark.parametrize("text", ["json.load", "self.names = names", "self.names[index]", "tools.warm", "net.report()"])
def test_helpers_that_are_called_for_sure_have_run(text: str) -> None:
    assert ran(text)


@pytest.mark.parametrize("text", ["Net(data)", "net.use(0)", "self.rows = data.rows", "print(self.rows)"])
def test_helpers_of_other_files_too(text: str) -> None:
    assert ran(text, path="tools.py")


@pytest.mark.parametrize(
    "text", ["torch.load", "net.restore", "net.write", "  resume(net)", "again = ", "return net.rate", "2 *"]
)
def test_what_a_condition_stands_before_may_not_have_run(text: str) -> None:
    """A call of another module's function by the same name is no call of the file's own."""
    assert not ran(text)


@pytest.mark.parametrize("text", ["torch.load", "net.use(1)"])
def test_what_nothing_that_ran_calls_has_not_run(text: str) -> None:
    assert not ran(text, path="tools.py")


def test_what_was_seen_calls_what_it_calls() -> None:
    assert ran("net.restore", seen="        resume(net)") and ran("torch.load", "        resume(net)", "tools.py")


def test_text_that_does_not_parse_has_no_lines() -> None:
    assert not Running({"main.py": "def ("}, {"main.py": {1}}).ran("main.py", 1)
