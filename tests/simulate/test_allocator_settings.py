"""PYTORCH_ALLOC_CONF: what is read, what is refused as CUDA refuses it, what makes no difference to the simulation."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from torchvet.allocator import Settings
from torchvet.simulate.allocation.settings import fraction_from, not_simulated, settings_from, text_of


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", Settings()),
        ("expandable_segments:True", Settings(expandable_segments=True)),
        ("max_split_size_mb: 128", Settings(max_split_size=128 << 20)),
        ("expandable_segments:False,garbage_collection_threshold:0.8", Settings(garbage_collection=0.8)),
        ("roundup_power2_divisions:4", Settings(roundup_divisions=4)),
        (
            "roundup_power2_divisions:[2:2,8:4,>:1],backend:native",
            Settings(roundup_intervals=(2, 2, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)),
        ),
    ],
)  # fmt: skip
def test_settings_are_read(text: str, settings: Settings) -> None:
    assert settings_from(text) == settings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_split_mb:128", "Unrecognized key 'max_split_mb' in CUDA allocator config"),
        ("max_split_size_mb:5", "too small"),
        ("expandable_segments:yes", "Expected 'True' or 'False'"),
        ("garbage_collection_threshold:1.5", "invalid"),
        ("roundup_power2_divisions:3", "power of 2"),
    ],
)
def test_what_cuda_refuses_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        settings_from(text)


def test_the_variable_counts_that_torch_reads() -> None:
    """The older one goes first."""
    both = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:200", "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:100"}
    assert text_of(both) == "max_split_size_mb:100"
    assert text_of({"PYTORCH_ALLOC_CONF": "b:1"}) == "b:1"
    code = "import torch; print(torch._C._accelerator_getAllocatorSettings())"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **both}
    )
    assert ran.stdout.strip() == text_of(both), ran.stderr


def test_a_share_of_the_card_may_be_given() -> None:
    assert fraction_from("per_process_memory_fraction:0.5") == 0.5 and fraction_from("") is None
    with pytest.raises(ValueError, match="set it in"):
        fraction_from("per_process_memory_fraction:2")


def test_what_makes_no_difference_is_said() -> None:
    given = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync,pinned_num_register_threads:8"}
    assert list(not_simulated(given)) == ["backend:cudaMallocAsync", "pinned_num_register_threads:8"]
    assert not list(not_simulated({"PYTORCH_ALLOC_CONF": "backend:native,expandable_segments:True"}))
