"""Commands that use a model: forecast, update, drift, flexibility."""

from pathlib import Path
from typing import Annotated

import typer

import atdm
from atdm.cli.options import Holidays, Json, Timezone
from atdm.cli.output import dumped, out, show
from atdm.data.clock import duration
from atdm.report.drift_figure import drift_figure
from atdm.report.folder import check_writable, write_file
from atdm.report.use_text import drift_table, flexibility_table, forecast_table, update_text
from atdm.use.series import parse_initial, parse_range, parse_start, read_future, read_observed, read_series

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
    typer.Option(help="Aggregate temperature at the first M stamps: numbers, or a table of time, aggregate_temp_c."),
]
Start = Annotated[str | None, typer.Option(help="First stamp to use, e.g. 2024-01-31T13:30Z.")]


@app.command()
def forecast(
    model: ModelFile,
    weather: Future,
    load: Annotated[Path, typer.Option(help="Load plan of the cluster: table of time, load_kw.")],
    initial: Initial = None,
    truth: Annotated[
        Path | None, typer.Option(help="Table of time, aggregate_temp_c: judge the forecast, and start from it.")
    ] = None,
    observed: Observed = None,
    start: Start = None,
    horizon: Annotated[str | None, typer.Option(help="How far to forecast, e.g. 7d; all rows if not given.")] = None,
    timezone: Timezone = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="CSV file for the trajectory.")] = None,
    as_json: Json = False,
) -> None:
    """Forecast the aggregate temperature with 80 % and 95 % bands."""
    found = atdm.forecast(
        atdm.Model.load(model), read_series(load, "load_kw", timezone=timezone),
        read_future(weather, timezone=timezone), parse_initial(initial) if initial else None,
        truth=read_series(truth, "aggregate_temp_c", timezone=timezone) if truth else None,
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
    figure: Annotated[Path | None, typer.Option(help="Draw it here, e.g. drift.svg; needs atdm[report].")] = None,
    as_json: Json = False,
) -> None:
    """Whether the cluster still behaves as it did: coefficients by window of released rows."""
    found = atdm.drift(
        atdm.Model.load(model), read_observed(observed, timezone=timezone), read_future(weather, timezone=timezone),
        window=window, every=every,
    )  # fmt: skip
    if figure is not None:
        drift_figure(found, figure)
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
        Path | None, typer.Option(help="Load without flexibility: time, load_kw. Default: least energy for comfort.")
    ] = None,
    power: Annotated[str | None, typer.Option(help="Limits of the load, LOW:HIGH in kW.")] = None,
    start: Start = None,
    horizon: Annotated[str, typer.Option(help="Length of the offer.")] = "24h",
    storage: Annotated[Path | None, typer.Option(help="Write the FlexMeasures storage flex-model here.")] = None,
    timezone: Timezone = None,
    as_json: Json = False,
) -> None:
    """Power and energy the cluster can offer while it stays comfortable, and the cheapest schedule."""
    found = atdm.flexibility(
        atdm.Model.load(model), read_future(weather, timezone=timezone), parse_range(comfort, "--comfort"),
        initial=parse_initial(initial) if initial else None,
        price=read_series(price, "price_per_kwh", timezone=timezone) if price else None,
        baseline=read_series(baseline, "load_kw", timezone=timezone) if baseline else None,
        power=parse_range(power, "--power") if power else None, start=parse_start(start, timezone),
        horizon=duration(horizon),
        observed=read_observed(observed, timezone=timezone) if observed else None,
    )  # fmt: skip
    if storage is not None:
        write_file(storage, dumped(found.flex_model()) + "\n")
    show(found.as_dict()) if as_json else out.print(flexibility_table(found))
