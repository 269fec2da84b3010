"""An offer of flexibility as files: tables, JSON and a page with pictures."""

import json
from html import escape

import numpy as np
import pandas as pd

from atdm.kernel.finite import without_nan
from atdm.report.chart import Chart, Series
from atdm.report.page import document, drawn, number, section, table
from atdm.types import FloatArray
from atdm.use.flexibility import Flexibility, Offer

EXPECTED, CONFIDENT = 1, 2  # colours of bands, of page.css
BASELINE, DROPPED, LIFTED, CHEAPEST = 0, 1, 2, 3  # and of lines


def flexibility_files(found: Flexibility, title: str) -> dict[str, str]:
    """Name → content of what `atdm flexibility -o` writes."""
    return {
        "envelope.csv": _envelopes(found).to_csv(),
        "schedules.csv": _schedules(found).to_csv(),
        "held.csv": _held(found).to_csv(),
        "flexibility.json": json.dumps(without_nan(found.as_dict()), indent=2, allow_nan=False) + "\n",
        "flexibility.html": flexibility_page(found, title),
    }


def flexibility_page(found: Flexibility, title: str) -> str:
    """One page that opens anywhere: what can be offered, what it is compared with, and why the model may be used."""
    return document(title, _headline(found, title), [
        section("envelope", "What can be offered", "", drawn([_power(found), _energy(found)])),
        section("held", "What can be reached and held", "", drawn([_reach(found)])),
        section("plans", "What it leads to", "", drawn([_temperature(found), _load(found), *_cost(found)])),
        section("planning", "Why the model may be planned with", "", _evidence(found)),
    ])  # fmt: skip


def _headline(found: Flexibility, title: str) -> str:
    offers = [o for o in (found.expected, found.confident) if o is not None]
    facts = [(f"least load held, {_name(o)}", _hours(o.drop)) for o in offers]
    facts += [(f"most load held, {_name(o)}", _hours(o.lift)) for o in offers]
    if found.saving is not None:
        facts.append(("the cheapest load saves, in the currency of the prices", number(found.saving, 2)))
    tiles = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    notes = "".join(f"<li>{escape(note)}</li>" for note in found.notes)
    (low, high), (least, most) = found.comfort, found.power
    return f"""
<p class="eyebrow">atdm flexibility</p>
<h1>{escape(title)}</h1>
<p class="lead">From {_when(found.envelope.index[0])} to {_when(found.envelope.index[-1])} UTC the cluster stays between
<b>{low:g} and {high:g} °C</b> with a load of {least:g} to {most:.4g} kW. Without intervention it is expected to use
{number(found.baseline.energy, 0)} kWh.</p>
<dl class="tiles">{tiles}</dl>
{f'<ul class="notes" aria-label="Notes">{notes}</ul>' if notes else ""}"""


# Figures


def _power(found: Flexibility) -> Chart:
    return _over_time(found, "power", "Least and most load at each step", "kW", "power_low", "power_high",
                      "Each step alone can have any load of the band; not all of them at once.")  # fmt: skip


def _energy(found: Flexibility) -> Chart:
    return _over_time(found, "energy", "Least and most energy since the start", "kWh", "energy_low", "energy_high",
                      "How much can have been used by then, comfort kept to the end.")  # fmt: skip


def _over_time(found: Flexibility, name: str, title: str, unit: str, low: str, high: str, caption: str) -> Chart:
    series = [
        Series(name=f"{unit}, {_name(o)}", values=o.envelope[low].to_numpy(), upper=o.envelope[high].to_numpy(),
               mark="band", colour=colour)
        for o, colour in ((found.expected, EXPECTED), (found.confident, CONFIDENT)) if o is not None
    ]  # fmt: skip
    base = found.baseline.load.to_numpy()
    if name == "energy":
        base = np.cumsum(base) * _step_hours(found)
    series.append(Series(name="baseline", values=base, colour=BASELINE, dashed=True))
    return Chart(name=name, title=title, caption=caption, x=_seconds(found.envelope.index), x_label="time [UTC]",
                 y_label=unit, series=series, axis="time")  # fmt: skip


def _reach(found: Flexibility) -> Chart:
    expected = found.expected.held
    series = [Series(name=f"load, {_name(found.expected)}", values=expected["low"].to_numpy(),
                     upper=expected["high"].to_numpy(), mark="band", colour=EXPECTED)]  # fmt: skip
    if found.confident is not None:
        sure = found.confident.held.reindex(expected.index)
        series.append(Series(name=f"load, {_name(found.confident)}", values=sure["low"].to_numpy(),
                             upper=sure["high"].to_numpy(), mark="band", colour=CONFIDENT))  # fmt: skip
    return Chart(
        name="held", title="Loads that can be held from now", x=_lengths(expected),
        caption="Any constant load of the band can be held for so long, and comfort kept until the end of the horizon. "
        "The lower edge is the least that can be held, the upper the most.",
        x_label="held for [h]", y_label="kW", series=series, axis="hours",
    )  # fmt: skip


def _temperature(found: Flexibility) -> Chart:
    time = found.envelope.index
    low, high = found.comfort
    edge = np.ones(len(time))
    series = [Series(name="comfort", values=low * edge, upper=high * edge, mark="band", colour=CONFIDENT)]
    series += [Series(name=n, values=s, colour=c) for n, s, c in _plans(found, "temperature")]
    return Chart(
        name="temperature", title="Aggregate temperature", caption="Every plan, simulated again by the planning model.",
        x=_seconds(time), x_label="time [UTC]", y_label="°C", series=series, axis="time",
    )  # fmt: skip


def _load(found: Flexibility) -> Chart:
    series = [Series(name=n, values=s, colour=c) for n, s, c in _plans(found, "load")]
    return Chart(
        name="load", title="Load", caption="Dropped and lifted: the least or most load for as long as it can be held, "
        "then the least energy that keeps comfort.",
        x=_seconds(found.envelope.index), x_label="time [UTC]", y_label="kW", series=series, axis="time",
    )  # fmt: skip


def _cost(found: Flexibility) -> list[Chart]:
    if found.price is None or found.cheapest is None:
        return []
    hours = _step_hours(found)
    series = [
        Series(name=name, values=(plan.load.abs() * found.price).cumsum().to_numpy() * hours, colour=colour)
        for name, plan, colour in (("baseline", found.baseline, BASELINE), ("cheapest", found.cheapest, CHEAPEST))
    ]  # fmt: skip
    return [Chart(
        name="cost", title="Cost since the start", caption="What has been paid by then; the last value is the cost.",
        x=_seconds(found.envelope.index), x_label="time [UTC]", y_label="currency", series=series, axis="time",
    )]  # fmt: skip


def _plans(found: Flexibility, what: str) -> list[tuple[str, FloatArray, int]]:
    plans = [("baseline", found.baseline, BASELINE), ("dropped", found.expected.dropped, DROPPED),
             ("lifted", found.expected.lifted, LIFTED), ("cheapest", found.cheapest, CHEAPEST)]  # fmt: skip
    return [(name, getattr(plan, what).to_numpy(), colour) for name, plan, colour in plans if plan is not None]


# Words and tables


def _evidence(found: Flexibility) -> str:
    e, p = found.planning.excitation, found.planning.plausibility
    rows = []
    if found.planning.assumed_gain is not None:
        rows.append(["steady gain, stated by you", f"{found.planning.assumed_gain:.4g} K/kW"])
    if e is not None:
        rows += [
            ["load not explained by weather, clock and past temperature", f"{100 * e.unexplained_share:.1f} %"],
            ["change of temperature after 24 h of 1 kW more", f"{e.response_24h:.4g} ± {e.standard_error:.2g} K"],
            ["the same judged over 6 h, over one step", f"{e.agreement:.2f}"],
            ["rows of an experiment", f"{e.probed_rows:,}"],
        ]
    if p is not None:
        without, extreme = ("cooling", "hottest") if p.cools else ("heat", "coldest")
        for hours, value in ((24, p.unheated_24h), (72, p.unheated_72h)):
            if value is not None:
                rows.append([f"temperature after {hours} h without {without}, from {p.mean_temp:.1f} °C with "
                             f"{p.mean_outdoor:.1f} °C outdoors", f"{value:.1f} °C"])  # fmt: skip
        rows.append(["load that holds the mean temperature, and what was used",
                     f"{p.mean_need:.1f} kW, {p.mean_heat:.1f} kW"])  # fmt: skip
        rows.append([f"the same on the {extreme} day, {p.coldest_outdoor:.1f} °C",
                     f"{p.coldest_need:.1f} kW, {p.coldest_heat:.1f} kW"])  # fmt: skip
    return table(["what", "found"], rows, download="planning")


def _envelopes(found: Flexibility) -> pd.DataFrame:
    if found.confident is None:
        return found.envelope
    sure = found.confident.envelope.add_prefix("confident_").join(found.confident.margin.rename(
        columns={"low": "margin_low_k", "high": "margin_high_k"}
    ))  # fmt: skip
    return found.envelope.join(sure)


def _schedules(found: Flexibility) -> pd.DataFrame:
    plans = {"baseline": found.baseline, "dropped": found.expected.dropped, "lifted": found.expected.lifted,
             "cheapest": found.cheapest}  # fmt: skip
    if found.confident is not None:
        plans["confident_cheapest"] = found.confident.cheapest
    columns = {}
    for name, plan in plans.items():
        if plan is not None:
            columns[f"{name}_kw"], columns[f"{name}_temp_c"] = plan.load, plan.temperature
    return pd.DataFrame(columns, index=found.envelope.index)


def _held(found: Flexibility) -> pd.DataFrame:
    both = found.expected.held.rename(columns={"low": "low_kw", "high": "high_kw"})
    if found.confident is not None:
        sure = found.confident.held.rename(columns={"low": "confident_low_kw", "high": "confident_high_kw"})
        both = both.join(sure)
    both.index = pd.Index(_lengths(both), name="hours")
    return both


def _name(offer: Offer) -> str:
    return "as expected" if offer.confidence is None else f"with {100 * offer.confidence:g} % confidence"


def _lengths(held: pd.DataFrame) -> FloatArray:
    """[h]"""
    return np.asarray([length.total_seconds() / 3600 for length in held.index], dtype=np.float64)


def _step_hours(found: Flexibility) -> float:
    times = found.envelope.index
    return float((times[1] - times[0]).total_seconds()) / 3600 if len(times) > 1 else 1.0


def _seconds(time: pd.Index) -> FloatArray:
    return np.asarray(pd.DatetimeIndex(time).as_unit("s").asi8, dtype=np.float64)


def _when(time: pd.Timestamp) -> str:
    return f"{time:%Y-%m-%d %H:%M}"


def _hours(length: pd.Timedelta) -> str:
    return f"{length.total_seconds() / 3600:g} h" if length else "no time"
