"""Rules for all tests of what stands around rules."""

from __future__ import annotations

import pytest
from word_rules import WordRule


@pytest.fixture
def words() -> tuple[WordRule, ...]:
    """A safe mend, an unsafe one, none, and a note."""
    return (
        WordRule("AAA101", "apple", "pear"),
        WordRule("AAA102", "anise", "basil", safe=False),
        WordRule("BBB101", "beech", severity="error"),
        WordRule("BBB201", "birch", severity="info"),
    )
