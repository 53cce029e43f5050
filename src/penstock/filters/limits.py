"""How large a filter may be. RocketMQ knows no limits; what is beyond these is refused with a reason."""

from __future__ import annotations

MAX_LENGTH = 32_768
"""Characters of the text."""
MAX_DEPTH = 64
"""Levels of parentheses, signs, NOT and comparisons of comparisons."""
MAX_TERMS = 512
"""Comparisons, tests and names that stand alone."""
MAX_VALUES = 4_096
"""Texts in all IN lists together."""
MAX_NAMES = 64
"""Different properties."""
