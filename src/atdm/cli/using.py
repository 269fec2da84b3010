"""Commands that use a model: forecast, flexibility."""

from pathlib import Path
from typing import Annotated

import typer

import atdm
from atdm.cli.options import Json, Timezone
from atdm.cli.printing import dumped, out, show
from atdm.data.clock import duration
from atdm.report.folder import write_file
from atdm.report.use_text import flexibility_table, forecast_table
from atdm.use.series import parse_initial, parse_range, parse_start, read_future, read_observed, read_series

app = typer.Typer()
ModelFile = Annotated[Path, typer.Argument(help="model.json written by atdm fit.")]
Future = Annotated[Path, typer.Option("--weather", help="Table of time, outdoor_temp_c, solar_w_m2.")]
Observed = Annotated[
    Path | None, typer.Option(help="observed.csv of atdm observe: go on from its last M rows; no --initial needed.")
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
