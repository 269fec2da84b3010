"""`atdm serve`: a desk over NATS, and what can be checked of its rules before anybody is asked."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd

from atdm.data.clock import spell
from atdm.data.holidays import days_of
from atdm.deploy.agent import Say, on_signal
from atdm.deploy.collecting import Office, collect
from atdm.deploy.conductor import AggregatorConfig
from atdm.deploy.enrolment import read_aggregator, read_roster
from atdm.deploy.fleet import OUTAGES, Fleet
from atdm.deploy.kept_model import check_first
from atdm.deploy.notify import keep_watchdog, notify
from atdm.deploy.record import ServiceRecord, stored_rows
from atdm.deploy.service import Keep, Service, WeatherFile, operate
from atdm.deploy.service_rules import ServiceRules
from atdm.deploy.service_state import State
from atdm.errors import DataError, UsageError
from atdm.model.fitted import Model
from atdm.protocol.company import owners_needed
from atdm.protocol.plan import Collect
from atdm.protocol.roster import Roster
from atdm.sinks.results import Results, Sent
from atdm.sinks.send import Sinks
from atdm.sinks.settings import Settings, parse_sinks

Publish = Callable[[State, str | None], None]  # the state, and model.json where that changed


def config_of(rules: ServiceRules) -> AggregatorConfig:
    fleet = rules.fleet
    return AggregatorConfig(
        identity=fleet.identity, roster=fleet.roster, servers=fleet.servers, wait=fleet.wait.total_seconds(),
        deadline=fleet.deadline.total_seconds(), at_least=fleet.at_least,
    )  # fmt: skip


def serve(rules: ServiceRules, model: Model | None, say: Say, publish: Publish) -> None:
    """Run the desk until Ctrl-C or SIGTERM. publish: is given its state whenever something happened."""
    with ServiceRecord(rules.record, time.time()) as record, Office(config_of(rules), say) as office:
        weather = WeatherFile(rules.weather.file, rules.weather.timezone)

        def look() -> tuple[Roster, Fleet]:
            return read_roster(rules.fleet.roster, office.authority), office.fleet.record

        service, sinks = Service(rules, record, weather, look, say, model), Sinks(sinks_of(rules))
        try:
            asyncio.run(_serve(service, office, publish, sinks if rules.sinks else None))
        finally:
            sinks.close()
        say("stopped")


def sinks_of(rules: ServiceRules) -> dict[str, Settings]:
    return parse_sinks(rules.sinks, "sinks of the rules")


async def _serve(service: Service, office: Office, publish: Publish, sinks: Sinks | None) -> None:
    outages = OUTAGES[service.rules.collect.outages]
    shown = [""]

    async def rows(plan: Collect, keep: Keep) -> None:
        await collect(office, plan, lambda portion: keep(portion.observation()), outages=outages)

    async def send(results: Results) -> list[Sent]:
        return [] if sinks is None else await _beside(lambda: sinks.send(results))

    def show(state: State) -> None:
        name = "" if state.model is None else state.model.hash
        publish(state, None if name == shown[0] else service.model_json())
        shown[0] = name
        notify(f"STATUS={state.doing}" if state.health.ok else f"STATUS=not well: {'; '.join(state.health.why)}")

    this, watchdog = asyncio.current_task(), asyncio.ensure_future(keep_watchdog())
    with on_signal(lambda: this.cancel() if this is not None else None):
        notify("READY=1")
        try:
            await operate(service, rows, publish=show, send=None if sinks is None else send)
        except asyncio.CancelledError:
            notify("STOPPING=1")
        finally:
            watchdog.cancel()


async def _beside(work: Callable[[], list[Sent]]) -> list[Sent]:
    """Work in a thread that nobody waits for when the desk stops, as they would for one of asyncio's."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[list[Sent]] = loop.create_future()

    def run() -> None:
        found = work()
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lambda: None if done.done() else done.set_result(found))

    threading.Thread(target=run, name="sinks", daemon=True).start()
    return await done


def check_files(rules: ServiceRules, model: Path | None) -> None:
    """Raise unless every file that the rules name is there; all that are missing are named at once."""
    fleet = rules.fleet
    named = [(fleet.identity / name, "fleet.identity") for name in ("nats.key", "authority.json")]
    named += [(fleet.roster, "fleet.roster"), (rules.weather.file, "weather.file")]
    for kind, table in rules.sinks.items():
        written = table.items() if isinstance(table, dict) else ()
        files = [(key, file) for key, file in written if key.endswith("_file") and isinstance(file, str)]
        named += [(Path(file), f"sinks.{kind}.{key}") for key, file in files]
    if model is not None:
        named.append((model, "the model to begin with"))
    if missing := [f"{path} ({what})" for path, what in named if _is_missing(path)]:
        raise DataError(f"missing: {', '.join(missing)}: put them there, or change the paths")


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:  # of another kind: whoever reads it says why it cannot be read
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


def check(rules: ServiceRules, model: Model | None, now: float) -> Iterator[str]:
    """What the desk would do, line by line; raises at the first thing that is wrong. Nobody is asked."""
    _, pinned = read_aggregator(rules.fleet.identity)
    roster = read_roster(rules.fleet.roster, pinned.authority)
    needed = owners_needed(roster, rules.fleet.at_least)
    if roster.owners() < needed:
        raise UsageError(f"{rules.fleet.roster}: {roster.owners()} owners, {needed} are needed: enrol more homes")
    config_of(rules)
    sinks = sinks_of(rules)
    sky = WeatherFile(rules.weather.file, rules.weather.timezone)()
    days_of(rules.model.holidays, pd.DatetimeIndex(sky.index))
    rows = stored_rows(rules.record) if rules.record.exists() else 0
    if model is not None:
        check_first(model, rules)
    collect, rule = rules.collect, rules.model
    yield (
        f"asks {len(roster)} homes of roster {roster.serial} every {spell(collect.every)} for rows of "
        f"{spell(collect.step)}, where at least {needed} owners take part; outages of homes: {collect.outages}"
    )
    yield (
        f"goes on from the record's {rows} rows" if rows else f"begins {spell(collect.history)} before its first start"
    )
    yield (
        f"makes a first model of {spell(rule.first_after)} of rows" if model is None else
        f"begins with the model given, where the record has none: {model.words()}"
    )  # fmt: skip
    yield (
        f"updates the model every {spell(rule.update_every)}, chooses order and day types every "
        f"{spell(rule.choose_every)}, or a week after the last choice where forecasts have become poor"
    )
    left = sky.index[-1].timestamp() - now
    reach = f"the weather reaches {left / 3600:.0f} h ahead" if left > 0 else "the weather has no row ahead yet"
    yield f"forecasts {spell(rules.forecast.horizon)} every {spell(rules.forecast.every)}; {reach}"
    low, high = rules.flexibility.comfort
    yield (
        f"offers flexibility between {low:g} and {high:g} °C, {spell(rules.flexibility.horizon)} ahead"
        if rules.flexibility.offered else "offers no flexibility"
    )  # fmt: skip
    yield (
        f"sends results to {', '.join(sinks)}"
        if sinks
        else "sends results nowhere: they are on the page and in the API"
    )
