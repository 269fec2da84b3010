"""Plan an experiment that shows what heat does: all set points of a cluster moved together, a little, by chance.

Thermostats heat when it is cold; only steps that nobody's comfort asked for tell the building from its thermostat.
Five days of ±1 K in blocks of 4 h are enough (docs/planning.md has the measurements).

Rule 1: as many steps up as down, in an order drawn by the seed. Of DRAWS draws the one is taken whose steps say least
        about the clock, for the model has a profile of the day that would take the rest.
Rule 2: no set point leaves the comfort limits; where these leave too little room, the plan is refused.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from atdm.data.clock import duration, spell, zone
from atdm.errors import UsageError
from atdm.model.calendar import DAY
from atdm.types import FloatArray

DRAWS = 500
LEAST_ROOM = 1.0  # K between the lowest and the highest set point, below which a step drowns in what else happens
FEWEST_BLOCKS = 12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probe:
    """An experiment to be carried out."""

    blocks: pd.DataFrame  # time, until (UTC), setpoint_offset_k [K]
    setpoint: float | None  # where thermostats stand otherwise [°C]
    comfort: tuple[float, float] | None  # [°C]
    timezone: str
    seed: int

    @property
    def hours_moved(self) -> float:
        """For how long set points are moved. [h]"""
        moved = self.blocks[self.blocks["setpoint_offset_k"] != 0]
        lengths = [b - a for a, b in zip(moved["time"], moved["until"], strict=True)]
        return float(sum(length.total_seconds() for length in lengths)) / 3600

    def as_dict(self) -> dict[str, object]:
        rows = self.blocks.assign(**{n: [t.isoformat() for t in self.blocks[n]] for n in ("time", "until")})
        return {
            "blocks": rows.to_dict("records"), "setpoint_c": self.setpoint,
            "comfort_c": None if self.comfort is None else list(self.comfort), "seed": self.seed,
        }  # fmt: skip


def plan_probe(
    start: pd.Timestamp,
    *,
    days: int = 5,
    step: float = 1.0,
    block: str = "4h",
    setpoint: float | None = None,
    comfort: tuple[float, float] | None = None,
    timezone: str = "UTC",
    seed: int = 0,
) -> Probe:
    """Blocks from `start` on in which all set points of the cluster are `step` K up, as they are, or `step` K down.

    setpoint and comfort [°C]: where thermostats stand, and between what they must stay.
    """
    length = duration(block)
    if DAY % length != pd.Timedelta(0):
        raise UsageError(f"--block {block}: a day must be a whole number of blocks, as with 4h")
    count = days * int(DAY // length)
    if count < FEWEST_BLOCKS:
        raise UsageError(f"{count} blocks of {spell(length)}: give at least {FEWEST_BLOCKS}, as in --days 5")
    if not 0 < step <= 3:
        raise UsageError(f"--step {step:g}: set points are moved by more than 0 and up to 3 K")
    if (setpoint is None) != (comfort is None):
        raise UsageError("comfort limits need the usual set point, and the set point the limits: give both or neither")
    up, down = step, step
    if setpoint is not None and comfort is not None:
        up, down = min(step, comfort[1] - setpoint), min(step, setpoint - comfort[0])
        if min(up, down) < 0 or up + down < LEAST_ROOM:
            raise UsageError(
                f"from {setpoint:g} °C, comfort {comfort[0]:g}:{comfort[1]:g} leaves {up:g} K up and {down:g} K down: "
                f"{LEAST_ROOM:g} K between them is the least that shows; widen --comfort"
            )
    zone(timezone)
    if start.tz is None:
        raise UsageError("the start of an experiment needs a time zone: write it like 2024-01-26T00:00Z")
    signs = _order(count, int(DAY // length), seed)
    first = start.tz_convert("UTC")
    times = pd.DatetimeIndex([first + i * length for i in range(count)])
    offsets = np.where(signs > 0, up, np.where(signs < 0, -down, 0.0))
    blocks = pd.DataFrame({"time": times, "until": times + length, "setpoint_offset_k": offsets})
    return Probe(blocks=blocks, setpoint=setpoint, comfort=comfort, timezone=timezone, seed=seed)


def _order(count: int, per_day: int, seed: int) -> FloatArray:
    """−1, 0, 1, each a third of the blocks, in the drawn order that depends least on the time of day (Rule 1)."""
    rng = np.random.default_rng(seed)
    third = count // 3
    signs = np.concatenate([np.ones(third), -np.ones(third), np.zeros(count - 2 * third)])
    slots = np.arange(count) % per_day
    number = np.bincount(slots, minlength=per_day)

    def by_clock(order: FloatArray) -> tuple[float, float]:
        means = np.bincount(slots, order, per_day) / number
        runs = np.abs(np.diff(order)) < 0.5  # neighbours alike: comfort wants them few
        return float((means**2).sum()), float(runs.sum())

    draws = [rng.permutation(signs) for _ in range(DRAWS)]
    return min(draws, key=by_clock)
