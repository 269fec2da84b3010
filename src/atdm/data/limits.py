"""What readings must lie between, and what is taken for another unit: the same for a table and for one home."""

INDOOR_C = (-30.0, 70.0)  # the usual error codes -40, 85 and 127 lie outside
OUTDOOR_C = (-60.0, 60.0)
LOAD_KW = (-10_000.0, 10_000.0)
SOLAR_W_M2 = (-20.0, 1500.0)  # pyranometers read a little below 0 at night; the solar constant is 1361

WATT_PEAK = 500.0  # a median agent that peaks above this is taken for watts [kW]
DARK_PEAK = 2.0  # a day or more that peaks below this is taken for kW/m² [W/m²]

OTHER_TEMPERATURES = (  # a median from, to [°C] is taken for another unit, and that is how to convert it
    (50.0, 110.0, "°F", "convert with (F - 32) / 1.8"),
    (120.0, 250.0, "0.1°C", "divide by 10"),
    (250.0, 320.0, "K", "subtract 273.15"),
    (1200.0, 3200.0, "0.01°C", "divide by 100"),
)

OTHER_STEP = "average it to that step, as `atdm import` does"
WIDEST_ZONE_HOURS = 14.0  # no place's clock is further from UTC


def no_weather(hours: float, at_an_end: bool) -> str:
    """What to do about stamps without weather, which span so many hours, at an end of the readings or within."""
    zone = "; or is one of the two in another time zone?" if at_an_end and hours <= WIDEST_ZONE_HOURS else ""
    return f"extend the weather, or cut the zones{zone}"
