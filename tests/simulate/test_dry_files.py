"""A dry run finds again what it saved, and no file that holds a checkpoint is another one afterwards."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from torchvet.simulate.dry import files, paths
from torchvet.simulate.dry.start import start


def _model() -> tuple[nn.Module, torch.optim.Optimizer]:
    warnings.simplefilter("ignore")
    model = nn.Sequential(nn.Linear(8, 512), nn.Linear(512, 8)).cuda()
    return model, torch.optim.Adam(model.parameters())


def _step(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    optimizer.zero_grad()
    model(torch.randn(4, 8, device="cuda")).sum().backward()
    optimizer.step()
    return torch.cuda.memory_allocated()


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    start()
    model, optimizer = _model()
    used, path = _step(model, optimizer), tmp_path / "last.pt"
    kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7, "rng": torch.get_rng_state()}
    kept |= {"lengths": torch.tensor([3, 5]).cuda(), "host": torch.tensor([1.5]), "large": torch.randn(512, 512)}
    torch.save(kept, f"{path}.tmp")
    kept["host"].zero_()
    os.replace(f"{path}.tmp", path)
    assert path.exists() and os.path.getsize(path) and not os.path.exists(f"{path}.tmp")
    back = torch.load(path)
    assert back["step"] == 7 and torch.equal(back["rng"], kept["rng"]) and back["host"].item() == 1.5
    assert back["lengths"].is_cuda and back["lengths"].tolist() == [3, 5] and back["large"].shape == (512, 512)
    assert back["model"]["0.weight"].is_cuda and torch.load(path, map_location="cpu")["model"]["0.weight"].is_cpu
    model.load_state_dict(back["model"])
    optimizer.load_state_dict(back["optimizer"])
    del back, kept["optimizer"], kept["lengths"]
    assert _step(model, optimizer) == used
    shutil.copy2(path, tmp_path / "best.pt")
    assert torch.load(tmp_path / "best.pt", mmap=True)["step"] == 7
    with pytest.raises(RuntimeError, match="Parent directory"):
        torch.save(kept, tmp_path / "nowhere" / "last.pt")
    path.unlink()
    with pytest.raises(FileNotFoundError):
        torch.load(path)
    assert not list(tmp_path.iterdir())


def test_buffers_and_pickles_hold_what_was_saved(tmp_path: Path) -> None:
    start()
    model, _ = _model()
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    again = torch.load(io.BytesIO(buffer.getvalue()))
    model.load_state_dict(again)
    assert pickle.loads(pickle.dumps(model))[0].weight.shape == (512, 8)
    with open(tmp_path / "odd.name", "wb") as file:
        torch.save(again, file)
    assert torch.load(tmp_path / "odd.name")["0.weight"].shape == (512, 8)
    files.clear()
    assert not list(tmp_path.iterdir())


def test_checkpoints_of_the_user_stay_as_they_were(tmp_path: Path) -> None:
    names = ["best.pt", "last", "old.pt", "run/step-1.ckpt"]
    (tmp_path / "run").mkdir()
    for name in names:
        torch.save({"from": name}, tmp_path / name)
    before = {name: (tmp_path / name).read_bytes() for name in names}
    start()
    model, _ = _model()
    for name in names[:2]:
        with open(tmp_path / name, "wb") as file:
            torch.save(model.state_dict(), file)
        assert "0.weight" in torch.load(tmp_path / name)
    assert torch.load(tmp_path / "old.pt") == {"from": "old.pt"}
    os.replace(tmp_path / "best.pt", tmp_path / "old.pt")
    assert "0.weight" in torch.load(tmp_path / "old.pt") and not os.path.exists(tmp_path / "best.pt")
    os.rename(tmp_path / "run" / "step-1.ckpt", tmp_path / "best.pt")
    assert torch.load(tmp_path / "best.pt") == {"from": "run/step-1.ckpt"}
    os.remove(tmp_path / "last")
    assert not (tmp_path / "last").exists()
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "log.txt").write_text("a log is the program's own")
    paths.held.clear()
    assert {name: (tmp_path / name).read_bytes() for name in names} == before
    assert (tmp_path / "log.txt").exists() and set(paths.kept_back) >= {"os.replace", "os.remove", "os.rename"}
