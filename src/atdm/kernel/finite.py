"""Numbers that JSON has."""

import math
from typing import Any

import numpy as np


def without_nan(value: Any) -> Any:
    """The same document with NaN and infinities as null, which JSON has."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value
