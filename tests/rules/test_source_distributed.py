"""How accumulation and samplers are written where several ranks train: what is found, and what is left in peace."""

from __future__ import annotations

import pytest

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = """
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
"""
COUNTED = """
model = DistributedDataParallel(nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
waiting = 0
for x, y in batches:
    nn.functional.mse_loss(model(x), y).backward()
    waiting += {add}
    if waiting == 4:
        optimizer.step()
        optimizer.zero_grad()
        {back}
"""
COUNTERS = [
    ({"add": "1", "back": "waiting = 0"}, True),
    ({"add": "1", "back": "pass"}, False),
    ({"add": "len(x)", "back": "waiting = 0"}, False),
]


@pytest.mark.parametrize(("parts", "wrong"), COUNTERS)
def test_a_counter_makes_a_window(parts: dict[str, str], wrong: bool) -> None:
    assert bool(list(rule("DST105").in_source(SourceFile("t.py", HEAD + COUNTED.format(**parts))))) is wrong


EPOCHS = """
def make(dataset):
    sampler = DistributedSampler(dataset, shuffle={shuffle})
    return DataLoader(dataset, sampler=sampler)

def run(model, dataset, optimizer, logger):
    loader = make(dataset)
    for epoch in range(9):
        for x, y in {over}:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
"""
PASSES = [
    ({"shuffle": "True", "over": "loader"}, True),
    ({"shuffle": "True", "over": "logger.log_every(loader, 10)"}, True),
    ({"shuffle": "True", "over": "batches(len(loader))"}, False),
    ({"shuffle": "False", "over": "loader"}, False),
]


@pytest.mark.parametrize(("parts", "wrong"), PASSES)
def test_a_loader_comes_from_a_function_and_is_logged_on_the_way(parts: dict[str, str], wrong: bool) -> None:
    assert bool(list(rule("DST107").in_source(SourceFile("t.py", HEAD + EPOCHS.format(**parts))))) is wrong


JOB = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

class Job:
    def __init__(self, net, device):
        self.net = DistributedDataParallel(net.to(device))

def run():
    dist.init_process_group("nccl")
    return Job(nn.Linear(2, 1), {device})
"""
DEVICES = [
    ('torch.device("cuda")', True),
    ('torch.device("cuda", int(os.environ["SLURM_LOCALID"]))', False),
    ("chosen_elsewhere()", False),
]


@pytest.mark.parametrize(("device", "wrong"), DEVICES)
def test_a_device_is_followed_into_the_class_that_is_given_it(device: str, wrong: bool) -> None:
    assert bool(list(rule("DST108").in_source(SourceFile("t.py", JOB.format(device=device))))) is wrong
