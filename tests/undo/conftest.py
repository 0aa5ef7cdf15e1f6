"""A user's folder, and one for state that is the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from trying import fill


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a user's files."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    fill(folder)
    return folder
