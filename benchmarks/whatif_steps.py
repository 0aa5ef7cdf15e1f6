"""The step at which `torchvet whatif` says that memory runs out, beside the step at which it does.

Each program leaks in its own way on a simulated GPU. It is recorded for some steps, asked about as it is and, measured
by a second run, with half its batch; then it is run until the simulated card refuses, both ways. Nothing is asserted:
read the table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_HEAD = """\
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
batch = int(sys.argv[1])
data = TensorDataset(torch.randn(batch * 4000, 8).repeat(1, 32), torch.randint(0, 10, (batch * 4000,)))
loader = DataLoader(data, batch_size=batch)
loss_of = nn.functional.cross_entropy
"""
_MLP = """\
net = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 256), nn.ReLU(), nn.Linear(256, 10)).to("cuda")
optimizer = torch.optim.AdamW(net.parameters())
kept = []
for x, y in loader:
    x, y = x.to("cuda"), y.to("cuda")
    out = net(x)
    loss = loss_of(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    KEEP
"""
PROGRAMS = {
    "graphs in a list": _HEAD + _MLP.replace("KEEP", "kept.append(net(x).mean())"),
    "features in a list": _HEAD + _MLP.replace("KEEP", "kept.append(net[:2](x).detach())"),
    "weights in a list": _HEAD + _MLP.replace("KEEP", "kept.append([p.detach().clone() for p in net.parameters()])"),
    "a state carried on": _HEAD
    + """\
cell, head = nn.GRUCell(256, 512).to("cuda"), nn.Linear(512, 10).to("cuda")
optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=1e-3)
state = torch.zeros(batch, 512, device="cuda")
for x, y in loader:
    state = cell(x.to("cuda"), state[: len(x)])
    loss = loss_of(head(state.detach()), y.to("cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
}


def asked(program: Path, batch: int, card: str, steps: int) -> dict[str, Any]:
    """The answers by what was asked."""
    command = ["whatif", "--simulate-gpu", card, "--steps", str(steps), "--quiet", "--format", "json", str(program)]
    result = subprocess.run(
        [sys.executable, "-m", "torchvet", *command, str(batch)], capture_output=True, text=True, check=False
    )
    report: dict[str, Any] = json.loads(result.stdout)
    return {row["asked"]: row for row in report["facts"]["whatif"]["answers"]}


def died(program: Path, batch: int, card: str) -> int:
    """The step at which the simulated card refused."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        subprocess.run(
            [sys.executable, "-m", "torchvet", "run", "--simulate-gpu", card, "--quiet", "--record", f"{folder}/a.vet",
             "-o", str(out), str(program), str(batch)],
            capture_output=True, check=False,
        )  # fmt: skip
        report = json.loads(out.read_text("utf-8"))
    if report["facts"]["outcome"]["how"] != "out-of-memory":
        raise SystemExit(f"{program.name} did not run out of memory: {report['facts']['outcome']}")
    return int(report["facts"]["steps"]) + 1


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--card", default="768MiB")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--only", choices=list(PROGRAMS), nargs="+", default=list(PROGRAMS))
    options = parser.parse_args()
    print("| program | batch | said | died | off |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            program = Path(folder) / "program.py"
            program.write_text(PROGRAMS[name], encoding="utf-8")
            rows = asked(program, options.batch, options.card, options.steps)
            for question, batch in (("as it is", options.batch), ("half the batch", options.batch // 2)):
                said, happened = rows[question]["first"], died(program, batch, options.card)
                off = f"{(said - happened) / happened:+.1%}" if said else "-"
                print(f"| {name} | {batch} | {said} | {happened} | {off} |", flush=True)


if __name__ == "__main__":
    main()
