"""What TensorBoard finds in a folder."""

from __future__ import annotations

from pathlib import Path


def scalars(folder: Path) -> dict[str, float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {tag: events.Scalars(tag)[-1].value for tag in events.Tags()["scalars"]}


def texts(folder: Path) -> str:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    (text,) = events.Tensors("torchvet/text_summary")
    return str(text.tensor_proto.string_val[0].decode())
