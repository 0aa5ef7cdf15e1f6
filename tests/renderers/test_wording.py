"""Amounts for people, at the edges where rounding changes the unit."""

from __future__ import annotations

import pytest

from torchvet.renderers.wording import count, encodable, limit, percent, printable, seconds, size


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 bytes"), (1, "1 byte"), (4, "4 bytes"), (2.5, "2.5 bytes"), (999, "999 bytes"), (999.97, "1.0 kB"),
        (1000, "1.0 kB"), (1700, "1.7 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"), (4_200_000, "4.2 MB"),
        (-4_200_000, "-4.2 MB"), (25_769_803_776, "25.8 GB"), (2e18, "2,000.0 PB"), (float("nan"), "an unknown amount"),
    ],
)  # fmt: skip
def test_sizes_are_decimal(amount: float, text: str) -> None:
    assert size(amount) == text


@pytest.mark.parametrize(
    ("amount", "text"), [(24 * 2**30, "25.8 GB = 24.0 GiB"), (1023.97 * 2**20, "1.1 GB = 1.0 GiB"), (512, "512 bytes")]
)
def test_limits_are_binary(amount: float, text: str) -> None:
    assert limit(amount) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(1, "1 step"), (0, "0 steps"), (1.5, "1.5 steps"), (5700, "5,700 steps"), (5700.4, "5,700 steps")],
)
def test_counts_have_separators_and_agree_with_their_noun(amount: float, text: str) -> None:
    assert count(amount, "step") == text


def test_a_noun_may_have_its_own_plural() -> None:
    assert count(2, "entry", "entries") == "2 entries"
    assert count(1234567) == "1,234,567"


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0 %"), (0.004, "< 1 %"), (0.0051, "1 %"), (0.996, "100 %"), (0.5, "50 %")]
)
def test_percentages(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (0, "0 us"), (0.00085, "850 us"), (0.0123, "12.3 ms"), (0.3, "300 ms"), (0.9994, "999 ms"), (0.9996, "1.0 s"),
        (4.2, "4.2 s"), (59.96, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"),
    ],
)  # fmt: skip
def test_durations(duration: float, text: str) -> None:
    assert seconds(duration) == text


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\x1b[31mb", "a\\x1b[31mb"), ("a\nb\tc", "a b c"), ("\u202eabc", "\\u202eabc"), ("\udc80", "\\udc80"),
        ("Zürich 日本 []", "Zürich 日本 []"),
    ],
)  # fmt: skip
def test_control_characters_are_shown_and_not_obeyed(given: str, shown: str) -> None:
    assert printable(given) == shown


def test_undecodable_file_names_can_be_encoded() -> None:
    assert encodable("caf\udce9.py") == "caf\\udce9.py"
