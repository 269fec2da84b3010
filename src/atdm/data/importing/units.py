"""Units: as people write them, in a header or an option, and what turns them into ours.

Ours are °C, kW and W/m². A unit of energy is energy of one interval, or a counter's; `spans` makes power of it.
"""

import re
from dataclasses import dataclass
from typing import Literal

from atdm.data.units import ENERGY, POWER, TEMPERATURE
from atdm.errors import UsageError

Quantity = Literal["temperature", "load", "outdoor", "solar"]
Measure = Literal["temperature", "power", "energy", "irradiance", "irradiation"]

OURS: dict[Quantity, str] = {"temperature": "°C", "load": "kW", "outdoor": "°C", "solar": "W/m²"}
MEASURES: dict[Quantity, tuple[Measure, ...]] = {
    "temperature": ("temperature",),
    "load": ("power", "energy"),
    "outdoor": ("temperature",),
    "solar": ("irradiance", "irradiation"),
}


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: ours = factor · value + offset (energy in kWh, irradiation in Wh/m²)."""

    name: str
    measure: Measure
    factor: float
    offset: float = 0.0

    @property
    def per_interval(self) -> bool:
        """Whether it must be divided by time."""
        return self.measure in ("energy", "irradiation")


_UNITS = (
    *(Unit(name, "temperature", *turned) for name, turned in TEMPERATURE.items()),
    Unit("0.1°C", "temperature", 0.1),
    Unit("0.01°C", "temperature", 0.01),
    *(Unit(name, "power", POWER[name]) for name in ("W", "kW", "MW", "BTU/h")),  # not mW: case is not looked at
    *(Unit(name, "energy", ENERGY[name]) for name in ("Wh", "kWh", "MWh", "J", "kJ", "MJ", "GJ")),
    Unit("W/m²", "irradiance", 1.0),
    Unit("kW/m²", "irradiance", 1e3),
    Unit("Wh/m²", "irradiation", 1.0),
    Unit("kWh/m²", "irradiation", 1e3),
    Unit("J/cm²", "irradiation", 1e4 / 3600),
    Unit("kJ/m²", "irradiation", 1e3 / 3600),
    Unit("MJ/m²", "irradiation", 1e6 / 3600),
)
_SPELLINGS = {
    "°C": ("c", "degc", "celsius", "℃", "gradc", "grad"),
    "°F": ("f", "degf", "fahrenheit", "℉"),
    "K": ("kelvin",),
    "0.1°C": ("0,1°c", "d°c", "decidegc", "decic", "1/10°c", "zehntelgrad"),
    "0.01°C": ("0,01°c", "c°c", "centidegc", "1/100°c"),
    "W": ("watt", "watts"),
    "kW": ("kilowatt", "kilowatts"),
    "MW": ("megawatt",),
    "BTU/h": ("btuh", "btu/hr"),
    "Wh": ("watthours",),
    "kWh": ("kilowatthours", "kwhr"),
}


def _key(text: str) -> str:
    plain = re.sub(r"[\s_.^]+", "", text.strip()) if not text.strip()[:1].isdigit() else re.sub(r"\s+", "", text)
    plain = plain.casefold().replace("deg", "°").replace("º", "°").replace("²", "2").replace("sqm", "m2")
    return plain.replace("/m2", "m2").replace("perm2", "m2").replace("/cm2", "cm2")


_BY_KEY = {_key(unit.name): unit for unit in _UNITS}
_BY_KEY |= {_key(word): unit for unit in _UNITS for word in _SPELLINGS.get(unit.name, ())}
_MEASURED = re.compile(r"temp|t_?(in|out|room)|power|leist|load|heat|heiz|energ|grad|outdoor|dry", re.I)
_BRACKETS = re.compile(r"[\[(]\s*([^\])]+?)\s*[\])]\s*$|\bin\s+(\S+)$")


def unit(text: str, quantity: Quantity, where: str) -> Unit:
    """The unit of an option, for a quantity that can have it."""
    found = _BY_KEY.get(_key(text))
    if found is None or found.measure not in MEASURES[quantity]:
        known = ", ".join(u.name for u in _UNITS if u.measure in MEASURES[quantity])
        raise UsageError(f"{where} {text!r} is no unit of {quantity}: choose one of {known}")
    return found


def is_unit(text: str) -> bool:
    """Whether a cell is a unit and nothing else."""
    return _key(text) in _BY_KEY if text.strip() else False


def split_header(header: str) -> tuple[str, Unit | None]:
    """A header without its unit, and the unit: "Leistung [kW]", "indoor_temp_c", "Power kW", "kWh"."""
    if match := _BRACKETS.search(header):
        found = _BY_KEY.get(_key(match[1] or match[2]))
        if found is not None:
            return header[: match.start()].strip(" _-"), found
    parts = [part for part in re.split(r"([\s_]+)", header.strip()) if part]
    for words in (2, 1):
        tail = "".join(parts[-(2 * words - 1) :])
        whole = len(parts) <= 2 * words - 1
        found = _BY_KEY.get(_key(tail))
        before = "".join(parts[: -(2 * words - 1)]).strip(" _-")
        if found is not None and (len(tail) > 1 or (not whole and _MEASURED.search(before))):  # "House C" is a house
            return before, found
    return header.strip(), None
