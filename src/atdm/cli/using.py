"""Commands that use a model: forecast, update, drift, flexibility; and probe, the experiment that planning needs."""

from pathlib import Path
from typing import Annotated

import typer

import atdm
from atdm.cli.options import Holidays, Json, Timezone
from atdm.cli.printing import dumped, out, show
from atdm.data.clock import duration
from atdm.report.drift_page import drift_page
from atdm.report.flexibility_page import flexibility_files
from atdm.report.folder import check_folder, check_writable, write_file, write_folder
from atdm.report.probe_files import probe_files, probe_table
from atdm.report.use_text import drift_table, flexibility_table, forecast_table, update_text
from atdm.sinks.flexmeasures import storage_model
from atdm.use.probe import plan_probe
from atdm.use.series import (
    instant,
    parse_initial,
    parse_range,
    parse_start,
    read_future,
    read_observed,
    read_series,
    read_truth,
)

app = typer.Typer()
ModelFile = Annotated[Path, typer.Argument(help="model.json written by atdm fit.")]
Future = Annotated[Path, typer.Option("--weather", help="Table of time, outdoor_temp_c, solar_w_m2.")]
Observed = Annotated[
    Path | None, typer.Option(help="observed.csv of atdm observe: go on from its last M rows; no --initial needed.")
]
ObservedRows = Annotated[
    Path, typer.Option("--observed", help="Table of time, aggregate_temp_c, load_kw: observed.csv of atdm observe.")
]
Initial = Annotated[
    str | None,
    typer.Option(
        help="Aggregate temperature at the first M stamps (flexibility: at least 2): numbers, or a table of time, "
        "aggregate_temp_c[, load_kw]."
    ),
]
Start = Annotated[str | None, typer.Option(help="First stamp to use, e.g. 2024-01-31T13:30Z.")]


@app.command()
def forecast(
    model: ModelFile,
    weather: Future,
    load: Annotated[
        Path | None,
        typer.Option(help="Load plan of the cluster: table of time, load_kw. Without it the load is forecast too."),
    ] = None,
    initial: Initial = None,
    truth: Annotated[
        Path | None,
        typer.Option(help="Table of time, aggregate_temp_c[, load_kw]: judge the forecast, and start from it."),
    ] = None,
    observed: Observed = None,
    start: Start = None,
    horizon: Annotated[str | None, typer.Option(help="How far to forecast, e.g. 7d; all rows if not given.")] = None,
    timezone: Timezone = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="CSV file for the trajectory.")] = None,
    as_json: Json = False,
) -> None:
    """Forecast the aggregate temperature, and the load where no plan is given, with 80 % and 95 % bands."""
    found = atdm.forecast(
        atdm.Model.load(model), read_series(load, "load_kw", timezone=timezone) if load else None,
        read_future(weather, timezone=timezone), parse_initial(initial) if initial else None,
        truth=read_truth(truth, timezone=timezone) if truth else None,
        start=parse_start(start, timezone), horizon=duration(horizon) if horizon else None,
        observed=read_observed(observed, timezone=timezone) if observed else None,
    )  # fmt: skip
    if output is not None:
        write_file(output, found.table.to_csv())
    show(found.as_dict()) if as_json else out.print(forecast_table(found))


@app.command()
def update(
    model: ModelFile,
    observed: ObservedRows,
    weather: Future,
    half_life: Annotated[str, typer.Option(help="In which a row's weight falls to half; 0d: all rows alike.")] = "30d",
    window: Annotated[str, typer.Option(help="Older rows are dropped.")] = "92d",
    choose: Annotated[bool, typer.Option("--choose", help="Choose order and day types again.")] = False,
    holidays: Holidays = None,
    timezone: Timezone = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write the model; over the old one if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Keep a model current from observed rows; no agent is asked. Earlier versions and their errors stay with it."""
    target = model if output is None else output
    check_writable(target)
    length = duration(half_life, zero=True)
    found = atdm.update(
        atdm.Model.load(model), read_observed(observed, timezone=timezone), read_future(weather, timezone=timezone),
        half_life=length or None, window=duration(window), choose=choose, holidays=holidays,
    )  # fmt: skip
    write_file(target, found.model.to_json())
    show(found.as_dict()) if as_json else out.print(update_text(found))


@app.command()
def drift(
    model: ModelFile,
    observed: ObservedRows,
    weather: Future,
    window: Annotated[str, typer.Option(help="Length of a window.")] = "14d",
    every: Annotated[str, typer.Option(help="By how much it is moved.")] = "7d",
    timezone: Timezone = None,
    page: Annotated[Path | None, typer.Option("--page", help="Draw it as a page here, e.g. drift.html.")] = None,
    as_json: Json = False,
) -> None:
    """Whether the cluster still behaves as it did: coefficients by window of released rows."""
    found = atdm.drift(
        atdm.Model.load(model), read_observed(observed, timezone=timezone), read_future(weather, timezone=timezone),
        window=window, every=every,
    )  # fmt: skip
    if page is not None:
        write_file(page, drift_page(found))
    show(found.as_dict()) if as_json else out.print(drift_table(found))


@app.command()
def flexibility(
    model: ModelFile,
    weather: Future,
    comfort: Annotated[str, typer.Option(help="Comfort band of the aggregate temperature, LOW:HIGH in °C.")],
    initial: Initial = None,
    observed: Observed = None,
    price: Annotated[Path | None, typer.Option(help="Table of time, price_per_kwh.")] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="Load without flexibility: time, load_kw. Default: its forecast if nobody intervenes."),
    ] = None,
    power: Annotated[str | None, typer.Option(help="Limits of the load, LOW:HIGH in kW.")] = None,
    start: Start = None,
    horizon: Annotated[str, typer.Option(help="Length of the offer.")] = "24h",
    confidence: Annotated[
        float | None,
        typer.Option(
            help="Also what keeps comfort at each step with this confidence, e.g. 0.9; a stated gain counts as sure."
        ),
    ] = None,
    assume_gain: Annotated[
        float | None,
        typer.Option(metavar="K_PER_KW", help="Steady warming per kW that you know, where the rows do not show it."),
    ] = None,
    storage: Annotated[Path | None, typer.Option(help="Write the FlexMeasures storage flex-model here.")] = None,
    timezone: Timezone = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for tables, JSON and a page with pictures.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Power and energy the cluster can offer while it stays comfortable; refused where heat's effect is not known."""
    check_folder(output)
    found = atdm.flexibility(
        atdm.Model.load(model), read_future(weather, timezone=timezone), parse_range(comfort, "--comfort"),
        initial=parse_initial(initial) if initial else None,
        price=read_series(price, "price_per_kwh", timezone=timezone) if price else None,
        baseline=read_series(baseline, "load_kw", timezone=timezone) if baseline else None,
        power=parse_range(power, "--power") if power else None, start=parse_start(start, timezone),
        horizon=duration(horizon),
        observed=read_observed(observed, timezone=timezone) if observed else None,
        confidence=confidence, assume_gain=assume_gain,
    )  # fmt: skip
    if output is not None:
        write_folder(output, flexibility_files(found, "Flexibility"))
    if storage is not None:
        write_file(storage, dumped(storage_model(found)) + "\n")
    show(found.as_dict()) if as_json else out.print(flexibility_table(found))


@app.command()
def probe(
    start: Annotated[str, typer.Option(help="When the experiment starts, e.g. 2024-01-22T00:00Z.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for table, calendar and automation.")],
    days: Annotated[int, typer.Option(help="How long it goes on.")] = 5,
    step: Annotated[float, typer.Option(help="By how much set points are moved, in K.")] = 1.0,
    block: Annotated[str, typer.Option(help="How long each move lasts.")] = "4h",
    setpoint: Annotated[float | None, typer.Option(help="Where thermostats stand otherwise, in °C.")] = None,
    comfort: Annotated[str | None, typer.Option(help="Limits that no set point leaves, LOW:HIGH in °C.")] = None,
    seed: Annotated[int, typer.Option(help="Of the order of the moves.")] = 0,
    entity: Annotated[list[str] | None, typer.Option(help="Thermostat in Home Assistant; repeat for several.")] = None,
    timezone: Timezone = None,
    as_json: Json = False,
) -> None:
    """Plan an experiment that shows what heat does: common set-point steps, seeded, within comfort."""
    check_folder(output)
    found = plan_probe(
        instant(start, timezone or "UTC"), days=days, step=step, block=block, setpoint=setpoint,
        comfort=parse_range(comfort, "--comfort") if comfort else None, timezone=timezone or "UTC", seed=seed,
    )  # fmt: skip
    write_folder(output, probe_files(found, entity or ()))
    show(found.as_dict()) if as_json else out.print(probe_table(found))
