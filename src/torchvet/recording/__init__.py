"""What a run wrote down: record types, writer, reader. Loaded when asked for: rules name record types in passing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchvet.recording.reader import RankRecording, Recording, read
    from torchvet.recording.writer import RecordingWriter

__all__ = ["RankRecording", "Recording", "RecordingWriter", "read"]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    home = "writer" if name == "RecordingWriter" else "reader"
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
