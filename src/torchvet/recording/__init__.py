"""What a run wrote down: record types, writer, reader."""

from torchvet.recording.reader import RankRecording, Recording, read
from torchvet.recording.writer import RecordingWriter

__all__ = ["RankRecording", "Recording", "RecordingWriter", "read"]
