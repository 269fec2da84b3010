"""The desk's page: the state of `atdm serve` as sections of HTML, each drawn anew when it changes.

Rule 1: every text that came from outside is escaped; the page's policy allows its own script and nothing else.
Rule 2: times are written in UTC and carry their number, so that the page's script can say how long ago that was.
"""

from datetime import UTC, datetime
from functools import cache
from html import escape
from string import Template

import numpy as np

from atdm.deploy.service_state import Alarm, FleetState, Home, Outlook, State
from atdm.report.chart import Chart, Series
from atdm.report.page import drawn, number, table
from atdm.report.parts import source_hash, static
from atdm.types import FloatArray

STANDINGS = {"in": ("a", "in"), "out": ("x", "out"), "silent": ("r", "silent"), "new": (".", "not heard of yet")}


@cache
def frame() -> tuple[str, str]:
    """The page with places for its sections, and the policy it is to be served with."""
    style, script = static("page.css") + static("live.css") + static("desk.css"), static("page.js") + static("desk.js")
    allowed = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {source_hash(script)}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Template(static("desk.html")).safe_substitute(style=style, script=script), allowed


def desk_page(sections: dict[str, str]) -> str:
    """The whole page as it is now."""
    page = frame()[0]
    for name, body in sections.items():
        page = page.replace(f"<!--{name}-->", body)
    return page


def desk_sections(state: State) -> dict[str, str]:
    """By name of the element what stands in it."""
    return {
        "head": _head(state),
        "alarms": "".join(map(_alarm, state.alarms)),
        "outlook": _outlook(state),
        "model": _model(state),
        "flexibility": _flexibility(state),
        "fleet": _fleet(state.fleet),
        "runs": _runs(state),
        "decisions": _decisions(state),
    }


def _head(state: State) -> str:
    health, now, model, fleet = state.health, state.now, state.model, state.fleet
    said = (
        "All is well."
        if health.ok and not state.alarms
        else "Working, with something to look at."
        if health.ok
        else (f"Not doing its work: {'; '.join(health.why)}.")
    )
    kind = "ok" if health.ok and not state.alarms else "warn" if health.ok else "bad"
    facts = [
        ("mean temperature", "–" if now is None else f"{number(now.aggregate_temp_c, 1)} °C"),
        ("load of the homes in", "–" if now is None else f"{number(now.load_kw, 1)} kW"),
        ("homes in", "–" if fleet is None else f"{fleet.inside} of {fleet.enrolled}"),
        ("newest row", "none yet" if now is None else _time(now.time)),
        ("next asking", _time(state.next_asking)),
        ("model's last row", "no model yet" if model is None else _time(model.until or model.made)),
        ("off after 24 h, last 7 days", "–" if model is None or model.rmse_24h_k is None else
         f"{number(model.rmse_24h_k, 2)} K"),
        ("alarms", f"{len(state.alarms)}" if state.alarms else "none"),
    ]  # fmt: skip
    tiles = "".join(f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in facts)
    return (
        f'<p class="lead" role="status" data-health="{kind}">{escape(said)}</p><dl class="tiles">{tiles}</dl>'
        f'<p class="help">Now: {escape(state.doing)}. {state.rows:,} rows observed since {_stamp(state.begun)}.</p>'
    )


def _alarm(alarm: Alarm) -> str:
    return (
        f"<li{' class=failure' if alarm.failure else ''}><b>{escape(_sentence(alarm.words))}</b> Since "
        f"{_time(alarm.since)}.<br>{escape(alarm.meaning)} <i>What to do:</i> {escape(alarm.remedy)}</li>"
    )


def _outlook(state: State) -> str:
    found = state.forecast
    if found is None:
        return (
            f'<p class="empty">{escape(state.model_words if state.model is None else "There is no forecast yet.")}</p>'
        )
    x = np.array([*state.past.time, *found.time])
    charts = [
        _over_time(x, len(state.past.time), found, "temperature", "Mean temperature of the homes", "°C", "",
                   "aggregate_temp_c", state.past.aggregate_temp_c),
        _over_time(x, len(state.past.time), found, "load", "Load of the homes", "kW", "load_", "load_kw",
                   state.past.load_kw),
    ]  # fmt: skip
    notes = "".join(f"<li>{escape(_sentence(note))}</li>" for note in found.notes)
    return drawn(charts) + (f'<ul class="notes">{notes}</ul>' if notes else "")


def _over_time(
    x: FloatArray, known: int, found: Outlook, name: str, title: str, unit: str, prefix: str, column: str,
    past: list[float],
) -> Chart:  # fmt: skip
    """What was and what comes; the forecast is joined to the last row known."""
    nothing = np.full(max(known - 1, 0), np.nan)
    last = past[-1:] if known else []

    def ahead(key: str) -> FloatArray:
        values = [np.nan if v is None else v for v in found.columns[key]]
        return np.concatenate([nothing, last, values])

    bands = [
        Series(name=f"{level} % of the time", values=ahead(f"{prefix}low_{level}"),
               upper=ahead(f"{prefix}high_{level}"), mark="band", colour=1)
        for level in ("95", "80") if f"{prefix}low_{level}" in found.columns
    ]  # fmt: skip
    observed = np.concatenate([past, np.full(len(x) - known, np.nan)])
    series = [*bands, Series(name="observed", values=observed, colour=0),
              Series(name="forecast", values=ahead(column), colour=1, dashed=True)]  # fmt: skip
    return Chart(
        name=name, title=title, x=x, x_label="time [UTC]", y_label=unit, series=series, axis="time",
        caption=f"If nobody intervenes; made {_stamp(found.made)}, from the row of {_stamp(found.origin)} on.",
        shade_from=found.origin,
    )  # fmt: skip


def _model(state: State) -> str:
    model = state.model
    if model is None:
        return f'<p class="empty">{escape(state.model_words)}</p>'
    judged = f"of {model.forecasts_judged} forecasts of the last 7 days"
    facts = [
        ("rows until", "–" if model.until is None else _time(model.until)),
        ("updated", _time(model.made)),
        ("order and day types chosen", _time(model.chosen)),
        ("speaks of", f"{model.homes} homes"),
        ("off after 24 h, expected", _kelvin(model.expected_rmse_24h_k)),
        (f"off after 24 h, {judged}", _kelvin(model.rmse_24h_k)),
        (f"load off after 24 h, {judged}", "–" if model.load_rmse_24h_kw is None else
         f"{number(model.load_rmse_24h_kw, 1)} kW"),
        ("inside the 80 % band", "–" if model.inside_80 is None else f"{100 * model.inside_80:.0f} %"),
    ]  # fmt: skip
    tiles = "".join(f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in facts)
    notes = "".join(f"<li>{escape(_sentence(note))}</li>" for note in model.notes)
    return (
        f"<p>{escape(_sentence(model.words))} {escape(_sentence(model.why))}</p>"
        f'<dl class="tiles">{tiles}</dl>{f"<ul class=notes>{notes}</ul>" if notes else ""}'
    )


def _flexibility(state: State) -> str:
    found = state.flexibility
    what = "Offered: " if found.offered else "Nothing is offered: "
    when = "" if found.made is None else f' <span class="help">Worked out {_time(found.made)}.</span>'
    return f"<p>{what}{escape(found.words)}.{when}</p>"


def _fleet(fleet: FleetState | None) -> str:
    if fleet is None:
        return '<p class="empty">The roster has not been read yet.</p>'
    counts = "".join(
        f'<li><span class="chip" data-state="{letter}">{words}</span> <b>{count}</b></li>'
        for standing, (letter, words) in STANDINGS.items()
        if (count := sum(home.standing == standing for home in fleet.homes))
    )
    away = [home for home in fleet.homes if home.standing != "in"]
    rows = [[home.name, STANDINGS[home.standing][1], home.why, "–" if home.heard is None else _stamp(home.heard)]
            for home in away]  # fmt: skip
    lengths = sorted(len(home.name) for home in fleet.homes)
    wide = min(26, lengths[9 * (len(lengths) - 1) // 10]) if lengths else 4  # of nine in ten names
    chips = "".join(map(_chip, fleet.homes))
    many = " many" if len(fleet.homes) > 200 else ""
    return (
        f"<p>Roster {fleet.serial}: {fleet.enrolled} homes enrolled; {fleet.needed} owners are needed for a sum. "
        f"Within a block of 28 days homes can leave and not join; this block ends {_stamp(fleet.block_ends)}. Days "
        f"summed in it: {fleet.fit_days}; given up because homes were out: {fleet.lost_days}.</p>"
        f'<ul class="states">{counts}</ul>'
        f'<ul class="agents{many}" style="--wide:{wide}" tabindex="0" aria-label="Every home and its standing">{chips}'
        "</ul>" + (table(["home", "standing", "why", "last heard"], rows, download="away", text=4) if rows else "")
    )


def _chip(home: Home) -> str:
    letter, words = STANDINGS[home.standing]
    why = f"{words}: {home.why}" if home.why else words
    return (
        f'<li title="{escape(home.name)}: {escape(why)}"><span class="chip" data-state="{letter}">{escape(home.name)}'
        f'</span><span class="visually-hidden">{escape(why)}</span></li>'
    )


def _runs(state: State) -> str:
    if not state.runs:
        return '<p class="empty">Nobody has been asked yet.</p>'
    rows = [
        [_stamp(run.began), str(run.asked), str(run.rows), str(len(run.inside)), str(len(run.out)),
         "under way" if run.ended is None else f"{run.ended - run.began:.0f}", run.words]
        for run in state.runs
    ]  # fmt: skip
    head = ["asked at", "rows asked", "rows came", "homes in", "out", "seconds", "how it ended"]
    return table(head, rows, download="runs", numeric=[False, True, True, True, True, True, False])


def _decisions(state: State) -> str:
    if not state.decisions:
        return '<p class="empty">Nothing has been decided yet.</p>'
    rows = [[_stamp(row.time), row.what, row.words] for row in state.decisions]
    return table(["when", "about", "what and why"], rows, download="decisions", text=3)


def _kelvin(value: float | None) -> str:
    return "–" if value is None else f"{number(value, 2)} K"


def _stamp(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _time(seconds: float) -> str:
    """A moment that the page's script turns into how long ago it was."""
    return f'<time data-at="{seconds:.0f}">{_stamp(seconds)}</time>'


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
