"""Windows that are copied whole for each new row are found; joins and copies that only look like it are not."""

from __future__ import annotations

from pathlib import Path

from example_runs import RECORDING, forked

from torchvet.recording import read
from torchvet.recording.records.timing import SlidingWindow

PROGRAM = """
from collections import deque
import torch
from torch import nn
torch.manual_seed(0)
N, ROWS = 512, 32
model = nn.Linear(N, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
table, prefix = torch.randn(999, N), torch.randn(60, N)

class Held:
    '''What a function keeps from call to call.'''
    def __init__(self):
        self.rows = torch.zeros(ROWS, N)
        self.wide = torch.zeros(4, ROWS, N)
        self.list = deque((torch.zeros(N) for _ in range(ROWS)), maxlen=ROWS)
        self.past = []
        self.step = 0

{functions}

held = {f: Held() for f in ({names})}
for step in range(24):
    x = torch.randn(8, N)
    loss = model(x).mean()
    for used, own in held.items():
        own.step = step
        loss = loss + used(own, x, x[:1]) * 0
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def seen(folder: Path, bodies: dict[str, str]) -> dict[str, SlidingWindow]:
    """What is found of functions with these bodies, all of one program, by name."""
    names = {f"used_{n}": name for n, name in enumerate(bodies)}
    functions = "\n".join(
        f"def {f}(self, x, new):\n    " + bodies[name].replace("\n", "\n    ") for f, name in names.items()
    )
    forked(PROGRAM.replace("{functions}", functions).replace("{names}", ", ".join(names) + ","), folder)
    every = read(folder / RECORDING).ranks[0].latest(SlidingWindow, "id")
    return {names[one.place.function]: one for one in every if one.place.function in names}


SLIDE = "self.rows = torch.cat((self.rows[1:], new))"
WINDOWS = {
    "once in each step": f"{SLIDE}\nreturn 0",
    "many times in each": f"for _ in range(10):\n    {SLIDE}\nreturn 0",
    "read each time": f"{SLIDE}\nreturn self.rows.sum()",
    "the newest first": "self.rows = torch.cat([new, self.rows[:-1]])\nreturn 0",
    "along another axis": "self.wide = torch.cat([self.wide[:, 1:], x[:4, None]], 1)\nreturn 0",
    "cut after the join": "self.rows = torch.cat([self.rows, new])[-ROWS:]\nreturn 0",
    "through a clone": "self.rows = torch.cat([self.rows[1:].clone(), new])\nreturn 0",
    "of another type": "self.rows = torch.cat((self.rows[1:].type(new.type()), new))\nreturn 0",
    "several of one line": "for k in range(2):\n"
    "    self.past[k:k + 1] = [torch.cat([self.past[k][1:], new]) if len(self.past) > k else self.rows]\nreturn 0",
    "rolled": "self.rows = torch.roll(self.rows, -1, 0); self.rows[-1] = new[0]\nreturn 0",
    "rolled, a number": "self.rows = torch.roll(self.rows, 1, 0); self.rows[0] = 1.0\nreturn 0",
    "moved in place": "self.rows[:-1] = self.rows[1:].clone(); self.rows[-1] = new[0]\nreturn 0",
    "a deque": "self.list.append(new[0].clone()); self.rows = torch.stack(list(self.list))\nreturn self.rows.sum()",
    "a deque, joined": "self.list.appendleft(new[0].clone()); self.rows = torch.cat([*self.list])\nreturn 0",
    "with a graph": "for _ in range(8):\n    self.rows = torch.cat((self.rows[1:], model.weight * 2))\n"
    "self.rows = self.rows.detach()\nreturn 0",
    "kept": f"{SLIDE}\nself.past.append(self.rows)\nreturn 0",
}
OTHERS = {
    "grows": "self.rows = torch.cat((self.rows, new))\nreturn 0",
    "shifted labels": "for _ in range(4):\n    shifted = torch.cat([new, table[:31]])\nreturn 0",
    "shifted labels of one tensor": "shifted = torch.cat([new, self.wide[0, :-1]])\nreturn 0",
    "a fixed prefix": "joined = torch.cat([prefix, new])\nreturn 0",
    "parameters joined": "rows = [p + 0 for p in table[:32]]\njoined = torch.stack(rows)\nreturn 0",
    "the same rows again": "joined = torch.stack(list(self.list))\nreturn 0",
    "rows that change": "for row in self.list: row.add_(1)\n"
    "self.list.append(new[0].clone()); joined = torch.stack(list(self.list))\nreturn 0",
    "another line's result": "self.rows = self.rows + 0\nself.rows = torch.cat((self.rows[1:], new))\nreturn 0",
    "joined once more": "joined = torch.cat([table[:31], new])\nshifted = torch.cat([new, joined[:-1]])\nreturn 0",
    "few rows": "self.rows = torch.cat((self.rows[:4][1:], table[:1].repeat(1, 1)))\nreturn 0",
    "half of it": "self.rows = torch.cat((self.rows[16:], table[:16]))\nreturn 0",
    "rolled fresh data": "moved = torch.roll(x.repeat(9, 1), 3, 0)\nreturn 0",
    "rolled and nothing written": "self.rows = torch.roll(self.rows, 1, 0)\nreturn 0",
    "rolled and all written": "self.rows = torch.roll(self.rows, 1, 0); self.rows[:] = new\nreturn 0",
    "rolled and decayed": "self.rows = torch.roll(self.rows, 1, 0); self.rows[0] = new[0]; self.rows *= 0.9\nreturn 0",
    "a ring": "self.rows[self.step % ROWS] = new[0]\nreturn self.rows.sum()",
    "saved and written back": "old = self.rows.clone(); self.rows.copy_(old)\nreturn 0",
    "a part written back": "old = self.rows[1:].clone(); self.rows[1:] = old\nreturn 0",
    "backward": "weight = model.weight.expand(64, N); torch.cat([weight[1:], new]).sum().backward()\nreturn 0",
}


GROW = "for _ in range(12):\n    rows = torch.cat([rows, table[:9]])"
GROWING = {
    "gathered": f"rows = table[:40]\n{GROW}\nreturn rows.sum()",
    "gathered with a graph": f"rows = table[:40] * model.weight\n{GROW}\nreturn rows.sum()",
    "along another axis, in front": "rows = self.wide\nfor _ in range(12):\n"
    "    rows = torch.cat([x[:4, None], rows], 1)\nreturn rows.sum()",
    "read each time": f"rows = table[:40]\n{GROW}; self.step = rows.mean()\nreturn 0",
}
SHORT = {
    "begun afresh": "for _ in range(12):\n    rows = torch.cat([table[:40], table[:9]])\nreturn 0",
    "a list, joined once": "rows = [table[:9] for _ in range(12)]\nreturn torch.cat(rows).sum()",
}


def test_a_tensor_that_grows_within_a_step_is_seen(tmp_path: Path) -> None:
    found = seen(tmp_path, GROWING | SHORT)
    assert {name for name, one in found.items() if one.grown} == {*GROWING}
    assert not any(one.copies for one in found.values())
    # The first of each step joins what the program made otherwise.
    assert all(one.grown == 11 * one.steps and 0 < one.seconds < one.all for one in found.values())
    assert {name for name, one in found.items() if 2 * one.grown_read > one.grown} == {"read each time"}
    assert {name for name, one in found.items() if one.graph} == {"gathered with a graph"}
    assert found["gathered"].bytes == (40 + 12 * 9) * 512 * 4


def test_a_window_that_moves_on_is_seen(tmp_path: Path) -> None:
    every = seen(tmp_path, WINDOWS | OTHERS)
    found = {name: one for name, one in every.items() if one.copies}
    assert {*found} == {*WINDOWS}
    for name, one in found.items():
        assert 0 < one.copies <= one.made and 0 < one.seconds < one.all, name
    # The first of each pair of steps copies what was made unseen: it says nothing, and counts as nothing.
    assert all(one.copies == one.made for one in found.values())
    assert {name for name, one in found.items() if 2 * one.read >= one.copies} == {"read each time", "a deque"}
    assert {name for name, one in found.items() if one.graph} == {"with a graph"}
    assert {name for name, one in found.items() if one.kept} == {"kept"}
    assert found["many times in each"].copies >= 9 * found["many times in each"].steps
    assert found["once in each step"].copies == found["once in each step"].steps
    assert found["once in each step"].bytes == 32 * 512 * 4
    assert found["rolled"].operator == "roll" and found["moved in place"].operator == "copy_"
