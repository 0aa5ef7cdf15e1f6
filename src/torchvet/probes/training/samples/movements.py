"""How a picture was moved: by comparing it before and after. Photometric changes, noise and normalization are none."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch

_LEAST, _MOST = 8, 1 << 20
"""Rows and columns that a picture has at least, and pixels that are compared at most."""
_ALIKE, _NEAR = 0.9, 0.01
"""Correlation from which on a place is found, and how far below the best one others are as good. Chosen, not
measured."""
_CERTAIN = 0.98
_SIDE = 96
"""Pixels of a side from which on pictures are compared smaller."""
_MANY = 400
"""Places that are as good as each other from which on nothing is known: the picture is plain there."""
_SLACK = 2
"""Pixels by which interpolation may shift."""
_FEW_VALUES = 32
"""Values of a picture that is a mask."""
_STEPS = 8
"""Steps of brightness in which two pictures are compared."""


class Movement(NamedTuple):
    """A picture is flipped or turned (one of eight ways), and lies at a place of the one before."""

    turn: int
    down: int
    right: int


NOWHERE = Movement(0, 0, 0)
_WORDS = (
    "as it was",
    "flipped left to right",
    "flipped upside down",
    "turned by 180°",
    "transposed",
    "turned by 90°",
    "turned by 90°",
    "transposed",
)


def described(one: Movement) -> str:
    """A movement in words."""
    moved = f"at {one.down}, {one.right}" if (one.down, one.right) != (0, 0) else ""
    return _WORDS[one.turn] if not moved else moved if not one.turn else f"{_WORDS[one.turn]}, {moved}"


def picture_of(value: Any) -> torch.Tensor | None:
    """A value as channels × rows × columns, copied, if it is a picture: a tensor, an array or one of PIL's. It may be a
    batch of one."""
    value = _tensor_of(value)
    if isinstance(value, torch.Tensor) and value.ndim == 4 and len(value) == 1:
        value = value[0]
    known = isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout is torch.strided
    if not known or value.ndim not in (2, 3) or value.is_complex() or value.numel() > 4 * _MOST:
        return None
    value = value.detach()
    if value.ndim == 2:
        value = value[None]
    elif value.shape[2] < min(value.shape[:2]):
        value = value.permute(2, 0, 1)
    small = min(value.shape[1:])
    few = value.shape[0] < small and small >= _LEAST and value[0].numel() <= _MOST
    return value.to(torch.float32, copy=True) if few else None


def _tensor_of(value: Any) -> Any:
    """An array or a picture of PIL's as a tensor."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return value
    if type(value).__module__.startswith("PIL.") and hasattr(value, "getbands"):
        value = numpy.asarray(value)
    if not isinstance(value, numpy.ndarray) or value.dtype.kind not in "fiub" or value.size > 4 * _MOST:
        return value
    # Torch has no unsigned integers of more than a byte, and no negative strides.
    return torch.from_numpy(numpy.ascontiguousarray(value if value.dtype.kind != "u" else value.astype("int32")))


def is_mask(picture: torch.Tensor) -> bool:
    """Whether it has few values, as labels of regions have."""
    return int(picture[0, ::2, ::2].flatten().sort().values.diff().count_nonzero()) < _FEW_VALUES


def alike(one: torch.Tensor, other: torch.Tensor) -> float:
    """The correlation of two pictures of one size."""
    a, b = one.mean(0).flatten(), other.mean(0).flatten()
    a, b = a - a.mean(), b - b.mean()
    return float((a @ b) / (a.norm() * b.norm()).clamp_min(1e-12))


def match(one: torch.Tensor, other: torch.Tensor) -> bool | None:
    """Whether two pictures of one size say more of each other as they lie than with one of them flipped or moved on by
    half its size; None where one is plain."""
    scale = _scale(one)
    a, b = (_steps(_smaller(picture.mean(0, keepdim=True), scale)) for picture in (one, other))
    if a is None or b is None:
        return None
    moved = [_turned(b, turn) for turn in range(4)]
    moved += [each.roll((b.shape[0] // 2, b.shape[1] // 2), (0, 1)) for each in moved]
    said = [_information(a, each) for each in moved]
    return said[0] > max(said[1:])


def _steps(picture: torch.Tensor) -> torch.Tensor | None:
    """The values in a few steps of the same number of pixels."""
    bounds = torch.quantile(picture, torch.linspace(0, 1, _STEPS + 1)[1:-1])
    steps = torch.bucketize(picture, bounds)
    return steps if int(steps.min()) < int(steps.max()) else None


def _information(a: torch.Tensor, b: torch.Tensor) -> float:
    """What the values of one picture say of those of the other at the same place, in nats."""
    both = torch.bincount((a * _STEPS + b).flatten(), minlength=_STEPS**2).reshape(_STEPS, _STEPS).double()
    both /= both.sum()
    apart = both.sum(1, keepdim=True) * both.sum(0, keepdim=True)
    return float((both * (both / apart.clamp_min(1e-300)).clamp_min(1e-300).log()).sum())


def movements(before: torch.Tensor, after: torch.Tensor) -> list[Movement] | None:
    """Where a picture may have come from another by; None where that is not known. Large ones are compared smaller."""
    scale = _scale(before)
    a, b = _smaller(before, scale), _smaller(after, scale)
    found: list[tuple[float, Movement]] = []
    best = 0.0
    for turn in range(8):
        # What is flipped, if anything, is not looked for transposed.
        if turn == 4 and best >= _CERTAIN:
            break
        places = _places(a, b, turn)
        if places is None:
            return None
        found += places
        best = max([best, *(score for score, _ in places)])
    near = [place for score, place in found if score >= best - _NEAR]
    good = [Movement(one.turn, one.down * scale, one.right * scale) for one in near]
    return good if 0 < len(good) <= _MANY else None


def _scale(picture: torch.Tensor) -> int:
    return max(1, -(-max(picture.shape[1:]) // _SIDE))


def _smaller(picture: torch.Tensor, scale: int) -> torch.Tensor:
    return torch.nn.functional.avg_pool2d(picture[:1], scale)[0] if scale > 1 else picture[0]


def _places(a: torch.Tensor, b: torch.Tensor, turn: int) -> list[tuple[float, Movement]] | None:
    """Where a picture lies in another, turned in one way, with correlations; None where one of them is plain."""
    same, turned = a.shape == b.shape, _turned(b, turn)
    # Of a picture of the same size the middle is looked for: the rest may have been shifted out.
    down, right = (b.shape[0] // 4, b.shape[1] // 4) if same else (0, 0)
    part = turned[down : turned.shape[0] - down or None, right : turned.shape[1] - right or None]
    if (same and turned.shape != a.shape) or part.shape[0] > a.shape[0] or part.shape[1] > a.shape[1]:
        return []
    scores = _scores(a, part)
    if scores is None:
        return None
    best = float(scores.max())
    good = (scores >= best - _NEAR).nonzero()[: _MANY + 1].tolist() if best >= _ALIKE else []
    return [(float(scores[y, x]), Movement(turn, y - down, x - right)) for y, x in good]


def are_apart(one: list[Movement], other: list[Movement], picture: torch.Tensor) -> bool:
    """Whether no movement of one is one of the other, of pictures of this size."""
    slack = _SLACK * _scale(picture)
    return not any(
        a.turn == b.turn and abs(a.down - b.down) <= slack and abs(a.right - b.right) <= slack
        for a in one
        for b in other
    )


def _turned(picture: torch.Tensor, turn: int) -> torch.Tensor:
    if turn & 4:
        picture = picture.T
    if turn & 1:
        picture = picture.flip(1)
    return picture.flip(0) if turn & 2 else picture


def _scores(whole: torch.Tensor, part: torch.Tensor) -> torch.Tensor | None:
    """The correlation of a part with every place of the whole; None where one of them is plain."""
    height, width = whole.shape[0] - part.shape[0] + 1, whole.shape[1] - part.shape[1] + 1
    a, b = (whole - whole.mean()).double(), (part - part.mean()).double()
    spread = b.norm()
    if float(spread) < 1e-6 or float(a.norm()) < 1e-6:
        return None
    size = list(whole.shape)
    across = torch.fft.irfft2(torch.fft.rfft2(a) * torch.fft.rfft2(b, s=size).conj(), s=size)[:height, :width]
    sums, squares = _boxes(a, part.shape), _boxes(a * a, part.shape)
    norm = (squares - sums * sums / part.numel()).clamp_min(0).sqrt()
    return torch.where(norm > 1e-3 * spread, across / (norm * spread).clamp_min(1e-12), 0.0)


def _boxes(picture: torch.Tensor, size: torch.Size) -> torch.Tensor:
    """The sum over a box of this size at every place."""
    total = torch.nn.functional.pad(picture, (1, 0, 1, 0)).cumsum(0).cumsum(1)
    h, w = size
    return total[h:, w:] - total[:-h, w:] - total[h:, :-w] + total[:-h, :-w]
