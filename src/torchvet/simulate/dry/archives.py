"""What `torch.save` is given in a dry run: kept in memory, for `torch.load` to give back. What goes into a file or a
buffer in its place is a token, so that it may be copied, sent and moved as bytes are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import serialization

from torchvet.simulate.dry import phantoms, values
from torchvet.simulate.tensors import SimulatedTensor

TOKEN = b"torchvet: saved by a dry run, without numbers, for itself alone: "
_DIGITS = 8
_META = torch.device("meta")
_kept: list[Archive] = []


class Archive:
    """In place of torch's reader of zip files: `storages` are host tensors where the numbers are known, else meta
    tensors of as many elements."""

    def __init__(self) -> None:
        self.records: dict[str, bytes] = {}
        self.storages: dict[str, torch.Tensor] = {}

    def has_record(self, name: str) -> bool:
        """As torch's."""
        return name in self.records

    def get_record(self, name: str) -> bytes:
        """As torch's."""
        return self.records[name]

    def get_all_records(self) -> list[str]:
        """As torch's."""
        return [*self.records, *self.storages]

    def serialization_id(self) -> str:
        """As torch's."""
        return ""

    def get_storage_from_record(self, name: str, size: int, cls: Any) -> torch.Tensor:
        """A tensor over a storage of its own."""
        kept = self.storages[name]
        with torch._C._DisableTorchDispatch():
            return phantoms.made_up(kept) if kept.device.type == "meta" else kept.clone()


def keep(obj: Any, pickle_module: Any, protocol: int) -> bytes:
    """Keep what is to be saved as it is now: the token for it. Raises what pickling raises."""
    import io

    archive, data = Archive(), io.BytesIO()
    keys: dict[int, str] = {}
    numbers: dict[int, torch.Tensor] = {}

    class Pickler(pickle_module.Pickler):  # type: ignore[misc]
        def persistent_id(self, obj: Any) -> Any:
            # Seen before its storage, which is asked for next: the numbers belong to both.
            if isinstance(obj, SimulatedTensor):
                _note(obj.host, numbers)
                return None
            if isinstance(obj, torch.storage.TypedStorage):
                name = obj._pickle_storage_type()  # type: ignore[no-untyped-call]
                untyped, dtype, kind = obj._untyped_storage, obj.dtype, getattr(torch, name)
            elif isinstance(obj, torch.UntypedStorage):
                untyped, dtype, kind = obj, torch.uint8, torch.UntypedStorage
            else:
                return None
            # Tensors that share a storage share its entry, as in a real file.
            key = keys.setdefault(untyped._cdata, str(len(keys)))
            name = f"data/{key}"
            if name not in archive.storages:
                # A copy: the program goes on to change its weights, and a file would not change with them.
                archive.storages[name] = _copy(untyped, dtype, numbers.get(untyped._cdata))
            return "storage", kind, key, serialization.location_tag(untyped), untyped.nbytes() // dtype.itemsize

    Pickler(data, protocol=protocol).dump(obj)
    archive.records["data.pkl"] = data.getvalue()
    _kept.append(archive)
    # Of one length, so that several may follow each other in a file.
    return TOKEN + str(len(_kept) - 1).zfill(_DIGITS).encode() + b"\n"


def _note(meta: torch.Tensor, numbers: dict[int, torch.Tensor]) -> None:
    """The numbers of a storage, where all of it is known."""
    known = values.known(meta)
    whole = not meta.storage_offset() and meta.numel() * meta.itemsize == meta.untyped_storage().nbytes()
    if known is not None and whole:
        with torch._C._DisableTorchDispatch():
            same = torch.empty_strided(meta.size(), meta.stride(), dtype=meta.dtype).copy_(known)
        numbers[meta.untyped_storage()._cdata] = same


def _copy(storage: torch.UntypedStorage, dtype: torch.dtype, numbers: torch.Tensor | None) -> torch.Tensor:
    if numbers is not None:
        return numbers
    if storage.device.type != "cpu" or phantoms.is_storage(storage):
        return torch.empty(storage.nbytes() // dtype.itemsize, dtype=dtype, device=_META)
    with torch._C._DisableTorchDispatch():
        return torch.empty(0, dtype=torch.uint8).set_(storage).clone()


def is_token(data: bytes) -> bool:
    """Whether bytes are what `keep` gave."""
    return data.startswith(TOKEN)


def _is_next(file: Any) -> bool:
    at = file.tell()
    head = file.read(len(TOKEN))
    # Looked at only: torch reads on from here.
    file.seek(at)
    return bool(head == TOKEN)


def _next(file: Any) -> Archive:
    """What the token stands for that a file goes on with. Raises `RuntimeError` where it is another run's."""
    file.read(len(TOKEN))
    number = int(file.read(_DIGITS + 1))
    # A token that was left by another run.
    if number >= len(_kept):
        raise RuntimeError("torchvet: another process's dry run saved this: it holds no numbers")
    return _kept[number]


def install() -> None:
    """Let `torch.load` find what the tokens stand for."""
    module: Any = serialization
    is_zip, opened = module._is_zipfile, module._open_zipfile_reader

    @contextmanager
    def reader(file: Any) -> Iterator[Any]:
        yield _next(file)

    module._is_zipfile = lambda file: _is_next(file) or is_zip(file)
    module._open_zipfile_reader = lambda file: (
        reader(file) if not isinstance(file, str) and _is_next(file) else opened(file)
    )
