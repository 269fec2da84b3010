"""The rules of `atdm serve`, in one TOML file: whom it asks, when it does what, when it raises an alarm.

Rule 1: a key that nobody reads is refused, with the name that was probably meant.
Rule 2: every value has a unit and limits; a refusal names the file and the key.
Rule 3: paths are those seen from the folder of the file.
"""

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
import pandas as pd
from msgspec import Meta, Struct

from atdm.data.clock import duration, spell, zone
from atdm.data.settings import read_toml
from atdm.deploy.fleet import OutagesName
from atdm.errors import AtdmError, DataError
from atdm.protocol.account import BLOCK
from atdm.protocol.rules import Rules

Length = pd.Timedelta  # written "15min", "24h", "7d"
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
HOUR, DAY = duration("1h"), duration("1d")
LENGTHS = {  # shortest and longest that make sense, by key
    "fleet.wait": ("1s", "1h"),
    "fleet.deadline": ("1s", "3d"),
    "collect.step": ("15min", "24h"),
    "collect.every": ("15min", "24h"),
    "collect.settle": ("0s", "24h"),
    "collect.back": ("1h", "28d"),
    "collect.history": ("0s", "92d"),
    "model.first_after": ("3d", "92d"),
    "model.update_every": ("1h", "7d"),
    "model.choose_every": ("1d", "92d"),
    "model.half_life": ("1d", "366d"),
    "model.window": ("14d", "366d"),
    "forecast.every": ("15min", "24h"),
    "forecast.horizon": ("1h", "7d"),
    "flexibility.horizon": ("1h", "48h"),
    "flexibility.every": ("15min", "24h"),
    "alarms.no_rows_for": ("1h", "7d"),
    "alarms.model_older_than": ("1d", "92d"),
    "alarms.weather_ends_within": ("0s", "7d"),
}


class Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class FleetRules(Table, frozen=True, kw_only=True):
    """Whom to ask, and how long to wait for them."""

    identity: Path  # folder made by `atdm enroll aggregator`
    roster: Path
    servers: Annotated[tuple[str, ...], Meta(min_length=1)]
    wait: Length = duration("5min")  # for absent homes to appear
    deadline: Length = duration("5min")  # for homes to answer a message
    at_least: Annotated[int, Meta(ge=3, le=100_000)] = Rules().least_agents  # homes, below which nobody is asked


class WeatherRules(Table, frozen=True, kw_only=True):
    """One table of the past and of what is forecast; read again when it changes."""

    file: Path
    timezone: str = "UTC"  # of stamps without an offset


class CollectRules(Table, frozen=True, kw_only=True):
    """Which rows are asked for, and when. All homes count alike (equal weights)."""

    step: Length = duration("30min")  # from one row to the next
    every: Length = HOUR
    settle: Length = duration("1min")  # after a row's end until it is in every home's file
    back: Length = duration("72h")  # how long rows that some home lacked are asked for again
    history: Length = duration("28d")  # how far before its first start the desk asks for rows
    outages: OutagesName = "balance"  # of a home: "wait" for it and lose rows, "leave" it out for the block, or both


class ModelRules(Table, frozen=True, kw_only=True):
    """When the model is made, updated and chosen again. No home is asked for any of it."""

    timezone: str = "UTC"  # the clock that people live by
    holidays: str | None = None  # country or COUNTRY/REGION
    first_after: Length = duration("14d")  # of rows collected
    update_every: Length = DAY
    choose_every: Length = BLOCK * DAY  # order and day types, besides coefficients
    half_life: Length = duration("30d")  # in which a row's weight falls to half
    window: Length = duration("92d")  # older rows are dropped


class ForecastRules(Table, frozen=True, kw_only=True):
    """Temperature and load if nobody intervenes, with bands."""

    every: Length = HOUR  # and whenever there are new rows or another model
    horizon: Length = duration("48h")


class FlexibilityRules(Table, frozen=True, kw_only=True):
    """What the cluster can offer while it stays comfortable."""

    offered: bool = False
    comfort: tuple[float, float] = (19.0, 22.0)  # least and highest aggregate temperature  [°C]
    horizon: Length = duration("24h")
    every: Length = HOUR
    confidence: Annotated[float, Meta(gt=0.5, lt=1.0)] | None = 0.9  # of the second, narrower offer
    assume_gain: Annotated[float, Meta(gt=0.0, le=100.0)] | None = None  # steady warming that you know  [K/kW]


class AlarmRules(Table, frozen=True, kw_only=True):
    """From where on people are told."""

    no_rows_for: Length = duration("6h")
    model_older_than: Length = duration("3d")
    weather_ends_within: Length = DAY
    homes_out: Share = 0.2  # of those enrolled
    coverage_below: Share = 0.6  # of the last 7 days' forecasts inside their 80 % band, 24 h ahead
    error_above: Annotated[float, Meta(ge=1.0, le=100.0)] = 2.0  # times what the model expected, 24 h ahead


class PageRules(Table, frozen=True, kw_only=True):
    """Where the page and the HTTP API are served, and to whom."""

    listen: str = "127.0.0.1:8765"
    token: Path | None = None  # file with the token, made at the first start; beside the record unless given
    open_on_loopback: bool = False  # whether programs of this machine need no token
    names: tuple[str, ...] = ()  # further names of this server, as a proxy passes them on
    requests_per_minute: Annotated[int, Meta(ge=10, le=100_000)] = 600  # of one address


class ServiceRules(Table, frozen=True, kw_only=True):
    """Everything the desk goes by."""

    record: Path  # SQLite file: what was observed, forecast and decided
    fleet: FleetRules
    weather: WeatherRules
    model: ModelRules = ModelRules()
    collect: CollectRules = CollectRules()
    forecast: ForecastRules = ForecastRules()
    flexibility: FlexibilityRules = FlexibilityRules()
    alarms: AlarmRules = AlarmRules()
    page: PageRules = PageRules()
    sinks: dict[str, Any] = {}  # settings of the places that results go to: docs/sinks.md

    @property
    def token_file(self) -> Path:
        return self.record.with_suffix(".token") if self.page.token is None else self.page.token


def read_rules(path: Path) -> ServiceRules:
    """The rules of a file, or one line that says which key of it is wrong."""
    document = read_toml(path, "give the rules of the desk, atdm serve --example prints some")
    _check_keys(path, document, ServiceRules, "")
    try:
        rules = msgspec.convert(document, ServiceRules, dec_hook=lambda kind, value: _decoded(path, kind, value))
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        key = where.removesuffix("`")
        raise DataError(f"{path}: {f'{key}: ' if key else ''}{what}") from None
    _check_values(path, rules)
    return rules


def _check_keys(path: Path, document: dict[str, Any], table: type[Struct], above: str) -> None:
    """Rule 1."""
    kinds = get_type_hints(table)
    for key, value in document.items():
        if key not in kinds:
            near = get_close_matches(key, kinds, n=1, cutoff=0.5)
            meant = f"did you mean {above}{near[0]}?" if near else f"there are {', '.join(kinds)}"
            raise DataError(f"{path}: {above}{key} is no rule: {meant}")
        if isinstance(kinds[key], type) and issubclass(kinds[key], Table) and isinstance(value, dict):
            _check_keys(path, value, kinds[key], f"{above}{key}.")


def _decoded(path: Path, kind: Any, value: Any) -> Any:
    """Lengths of time and paths from what the file says."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} where words in quotes are expected")
    if kind is Path:
        return path.parent / value
    try:
        return duration(value, zero=True)
    except AtdmError as error:
        raise ValueError(str(error)) from None


def _check_values(path: Path, rules: ServiceRules) -> None:
    """Rule 2, where a type does not say it."""
    for key, (least, most) in LENGTHS.items():
        table, name = key.split(".")
        value = getattr(getattr(rules, table), name)
        if not duration(least, zero=True) <= value <= duration(most):
            raise DataError(f"{path}: {key} = {spell(value)}: give between {least} and {most}")
    for key, name in (("weather.timezone", rules.weather.timezone), ("model.timezone", rules.model.timezone)):
        try:
            zone(name)
        except AtdmError as error:
            raise DataError(f"{path}: {key}: {error}") from None
    step, every = rules.collect.step, rules.collect.every
    wrong = [
        (bool(DAY % step), f"collect.step = {spell(step)}: give one that divides the day, as agents ask for"),
        (bool(every % step), f"collect.every = {spell(every)}: give a multiple of collect.step, {spell(step)}"),
        (bool(DAY % every), f"collect.every = {spell(every)}: give one that divides the day"),
        (rules.model.first_after > rules.model.window, "model.first_after is longer than model.window: shorten it"),
        (rules.alarms.model_older_than < rules.model.update_every,
         f"alarms.model_older_than is shorter than model.update_every, {spell(rules.model.update_every)}: it would "
         "never be silent; make it longer"),
        (rules.alarms.no_rows_for < every,
         f"alarms.no_rows_for is shorter than collect.every, {spell(every)}: it would never be silent; make it longer"),
        (not -50 <= rules.flexibility.comfort[0] < rules.flexibility.comfort[1] <= 60,
         "flexibility.comfort: give the least and the highest temperature in °C, as in [19.0, 22.0]"),
    ]  # fmt: skip
    for is_wrong, words in wrong:
        if is_wrong:
            raise DataError(f"{path}: {words}")


EXAMPLE = """\
# Rules of one desk (atdm serve). Paths are those seen from the folder of this file; lengths of time are whole numbers
# with s, min, h, d or w. What is commented out has the value shown.

record = "desk.sqlite"                      # what was observed, forecast and decided; back it up

[fleet]
identity = "office/aggregator"              # folder made by `atdm enroll aggregator`
roster = "roster.json"                      # signed by the authority; read again for every run
servers = ["tls://nats.example.org:4222"]
# wait = "5min"                             # for absent homes to appear
# deadline = "5min"                         # for homes to answer a message
# at_least = 10                             # homes; with fewer nobody is asked

[weather]
file = "weather.csv"                        # time, outdoor_temp_c, solar_w_m2: the past, and what is forecast
# timezone = "UTC"                          # of stamps without an offset

[collect]
# step = "30min"                            # from one row to the next, as in the homes' files
# every = "1h"
# settle = "1min"                           # after a row's end until it is in every home's file
# back = "72h"                              # how long rows that some home lacked are asked for again
# history = "28d"                           # how far before the first start rows are asked for
# outages = "balance"                       # of a home: "wait" for it and lose rows, "leave" it out for the block

[model]
# timezone = "UTC"                          # the clock that people live by, such as "Europe/London"
# holidays = "GB"                           # country or COUNTRY/REGION; without it: none
# first_after = "14d"                       # of rows collected
# update_every = "24h"                      # coefficients
# choose_every = "28d"                      # order and day types too; earlier where forecasts have become poor
# half_life = "30d"                         # in which a row's weight falls to half
# window = "92d"                            # older rows are dropped

[forecast]
# every = "1h"                              # and whenever there are new rows or another model
# horizon = "48h"

[flexibility]
# offered = false
# comfort = [19.0, 22.0]                    # aggregate temperature in °C
# horizon = "24h"
# every = "1h"
# confidence = 0.9                          # of the second, narrower offer
# assume_gain = 0.05                        # K per kW that you know, where the rows do not show it; without it: none

[alarms]
# no_rows_for = "6h"
# model_older_than = "3d"
# weather_ends_within = "24h"
# homes_out = 0.2                           # share of the homes enrolled
# coverage_below = 0.6                      # share of the last 7 days' forecasts inside their 80 % band, 24 h ahead
# error_above = 2.0                         # times the error 24 h ahead that the model expected

[page]
# listen = "127.0.0.1:8765"
# token = "desk.token"                      # made at the first start, readable by you alone
# open_on_loopback = false                  # true: programs of this machine need no token
# names = []                                # further names of this server, as a proxy passes them on
# requests_per_minute = 600                 # of one address

# Where results go besides the page and the API: docs/sinks.md. For Home Assistant write [sinks.mqtt] and its host.
"""
