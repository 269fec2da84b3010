"""Units by the names that devices give them, and what turns their values into °C, kW and kWh."""

from atdm.types import FloatArray

TEMPERATURE = {"°C": (1.0, 0.0), "°F": (5 / 9, -160 / 9), "K": (1.0, -273.15)}  # factor, offset  [°C]

POWER = {  # [kW]
    "mW": 1e-6, "W": 1e-3, "kW": 1.0, "MW": 1e3, "GW": 1e6, "TW": 1e9, "BTU/h": 0.29307107017e-3,
}  # fmt: skip

ENERGY = {  # [kWh]
    "J": 1 / 3.6e6, "kJ": 1 / 3.6e3, "MJ": 1 / 3.6, "GJ": 1 / 3.6e-3, "mWh": 1e-6, "Wh": 1e-3, "kWh": 1.0, "MWh": 1e3,
    "GWh": 1e6, "TWh": 1e9, "cal": 4.184 / 3.6e6, "kcal": 4.184 / 3.6e3, "Mcal": 4.184 / 3.6, "Gcal": 4184 / 3.6,
}  # fmt: skip


def celsius(values: FloatArray, unit: str) -> FloatArray:
    factor, offset = TEMPERATURE[unit]
    return values * factor + offset
