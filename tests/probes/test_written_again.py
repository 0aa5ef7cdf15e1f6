"""Files that are written whole again, each time with more, are counted by the call that opens them."""

from __future__ import annotations

from pathlib import Path

from example_runs import RECORDING, forked

from torchvet.recording import read
from torchvet.recording.records.reading import WrittenAgain

PROGRAM = """
import builtins, csv, gzip, io, json, os, pickle
from pathlib import Path
import numpy
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rows, tensors, folder = [], [], Path("out")
folder.mkdir(exist_ok=True)

def as_text(n):
    numpy.savetxt(folder / "a.txt", numpy.array(rows))
def as_array(n):
    numpy.save("out/b.npy", numpy.array(rows))
def as_json(n):
    with open("out/c.json", "w") as file:
        json.dump(rows, file)
def pickled(n):
    file = io.open(folder / "d.pkl", mode="wb")
    pickle.dump(rows, file)
    file.close()
def by_path(n):
    (folder / "e.json").write_text(json.dumps(rows))
def by_torch(n):
    torch.save(tensors, "out/f.pt")
def renamed(n):
    with open("out/g.tmp", "w") as file:
        csv.writer(file).writerows(rows)
    os.replace("out/g.tmp", "out/g.csv")
def renamed_path(n):
    Path("out/h.tmp").write_text(str(rows))
    Path("out/h.tmp").rename("out/h.txt")
def zipped(n):
    with gzip.open("out/i.gz", "wt") as file:
        file.write(str(rows))
def two_files(n):
    open(f"out/j{n // 10}.txt", "w").write(str(rows[n // 10 * 10:]))

def appended(n):
    with open("out/k.txt", "a") as file:
        print(rows[-1], file=file)
def same_size(n):
    torch.save(model.state_dict(), "out/l.pt")
def one_each(n):
    open(f"out/m{n}.txt", "w").write(str(rows))
def read_back(n):
    known = json.loads(Path("out/n.json").read_text()) if n else []
    Path("out/n.json").write_text(json.dumps(known + [n]))
def read_renamed(n):
    known = json.loads(Path("out/o.json").read_text()) if n else []
    Path("out/o.tmp").write_text(json.dumps(known + [n]))
    os.replace("out/o.tmp", "out/o.json")
def in_memory(n):
    torch.save(tensors, io.BytesIO())
def to_nowhere(n):
    open(os.devnull, "w").write(str(rows))

class Uses:
    opened = open
assert Uses().opened(os.devnull).read() == "" and pickle.loads(pickle.dumps(open)) is open
for step in range(20):
    rows.append([step, float(step) ** 0.5])
    tensors.append(torch.full((50,), float(step)))
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    for write in (as_text, as_array, as_json, pickled, by_path, by_torch, renamed, renamed_path, zipped, two_files,
                  appended, same_size, one_each, read_back, read_renamed, in_memory,
                  to_nowhere):
        write(step)
assert open is io.open is builtins.open
"""


def test_growing_files_by_the_call_that_opens_them(tmp_path: Path) -> None:
    forked(PROGRAM, tmp_path)
    every = read(tmp_path / RECORDING).ranks[0].latest(WrittenAgain, "id")
    found = {one.place.function: one for one in every}
    growing = {name for name, one in found.items() if one.grew >= 0.8 * (one.writes - one.files) and not one.read}
    # The header of NumPy's file has room: a few rows more need no other size of it.
    assert growing == {
        *("as_text", "as_array", "as_json", "pickled", "by_path", "by_torch", "renamed", "renamed_path", "zipped"),
        "two_files",
    }
    # Counted from the first step on.
    assert found["as_json"].writes == 20 and found["two_files"].files == 2
    for name in growing - {"zipped", "two_files"}:
        one = found[name]
        assert one.files == 1 and 5 * one.last_bytes < one.bytes < 20 * one.last_bytes, name
    assert found["read_back"].read == found["read_renamed"].read == 19 and found["same_size"].grew <= 1
    assert "appended" not in found and "one_each" not in found and "in_memory" not in found
