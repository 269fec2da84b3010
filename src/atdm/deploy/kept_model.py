"""The model of a desk: made, updated and chosen again from the rows of its record, when that is due. No home is asked.

Rule 1: the load is that of the homes of now: rows of fewer or more homes are scaled, and so is the model.
Rule 2: rows that came late enter the next model at their place.
"""

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from hashlib import sha256

import numpy as np
import pandas as pd

from atdm.data.clock import duration, season_steps, spell
from atdm.data.holidays import days_of
from atdm.deploy.record import ModelRow, ServiceRecord
from atdm.deploy.service_rules import ServiceRules
from atdm.deploy.service_state import ModelState
from atdm.errors import AtdmError, DataError, UsageError
from atdm.model import current
from atdm.model.calendar import Calendar
from atdm.model.choosing import choose
from atdm.model.fitted import Model
from atdm.model.released import Released, released_rows
from atdm.protocol.plan import DAY
from atdm.use.drift import drift

SEASON = "24h"
TRAIN = 0.75  # of the rows choose a first model; the others judge it
BEHIND = 2  # lengths of update_every that rows may be ahead of the model, whenever that was made
VERSIONS = 7  # earlier versions that stay with the model; the record has all of them
JUDGED = duration("7d")  # of forecasts that say how good the model is
AGAIN = duration("7d")  # after a choice until poor forecasts cause another one
LEAST_JUDGED = 24  # forecasts, below which nothing is said about them
DRIFT_EVERY = duration("7d")

Decide = Callable[[float, str, str], None]  # when, about what, what and why


class KeptModel:
    """The model in use, and when the next one is due."""

    def __init__(self, rules: ServiceRules, record: ServiceRecord, decide: Decide, first: Model | None) -> None:
        """first: to begin with, where the record has none."""
        self._rules, self._record, self._decide = rules, record, decide
        self.model: Model | None = None
        self.row: ModelRow | None = None
        self._drift: tuple[float, list[str]] = (-math.inf, [])
        saved = record.model()
        if saved is not None:
            self.row, self.model = saved[0], current.with_all_kinds(Model.from_json(saved[1], str(record.path)))
        elif first is not None:
            homes = check_first(first, rules)
            self.take(current.with_all_kinds(first), record.begun, "given at the start", homes, chosen=True)

    @property
    def homes(self) -> int:
        """Homes in the newest row."""
        newest = self._record.newest()
        return 0 if newest is None else int(self._record.observed(newest)["agents"].iloc[-1])

    def observed(self, since: float) -> pd.DataFrame:
        """Rows as if all homes of now had been in: the mean temperature, and the load of so many average homes."""
        table = self._record.observed(math.ceil(since))
        return table.assign(load_kw=table["load_kw"] / table["agents"] * self.homes) if len(table) else table

    def _released(self, since: float, sky: pd.DataFrame) -> Released:
        """Observed rows that the weather covers."""
        return replace(released_rows(self.observed(since), sky, self._rules.collect.step), equal=True)

    def of_now(self) -> Model:
        """The model in use, as of the homes of now."""
        if self.model is None or self.row is None:
            raise DataError("there is no model yet")
        return self.model.of_size(self.homes / self.row.agents)

    def take(self, model: Model, now: float, why: str, homes: int, *, chosen: bool) -> None:
        """From now on this model is used; what stays of the one before is its coefficients."""
        model = replace(model, versions=model.versions[-VERSIONS:])
        document = model.to_json()
        name = sha256(document.encode()).hexdigest()[:16]
        before = self.model
        short = None if before is None else replace(before, released=None, trained=0, record=None, versions=())
        when = now if chosen or self.row is None else self.row.chosen
        row = ModelRow(hash=name, made=now, chosen=when, agents=homes, why=why)
        self._record.add_model(row, document, None if short is None else short.to_json())
        self.model, self.row = Model.from_json(document), row  # as a restart would find it

    def keep_current(self, now: float, sky: pd.DataFrame) -> None:
        """Make a first model, update it, choose it again, where that is due."""
        rules, newest = self._rules.model, self._record.newest()
        if newest is None:
            return
        since = newest - rules.window.total_seconds()
        if self.model is None or self.row is None:
            rows = self._released(since, sky)
            if len(rows) * self._rules.collect.step >= rules.first_after:
                self._first_model(rows, now)
            return
        until = self.model.until
        if until is None or newest <= until.timestamp():
            return
        behind = newest - until.timestamp() >= BEHIND * rules.update_every.total_seconds()
        if within(self.row.made, now, rules.update_every) and not behind:
            return
        rows = self._released(since, sky)
        if not len(rows) or rows.time[-1] <= until:
            return
        why = self._why_choose(now)
        if self.homes != self.row.agents:
            self._decide(now, "fleet", f"the model now speaks of {self.homes} homes, {self.row.agents} before")
        known, choose_again = _with_late_rows(self.of_now(), rows), why is not None
        try:
            found = self._updated(known, rows, choose_again)
        except AtdmError as error:
            if not choose_again:
                raise
            why = None  # coefficients at least
            self._decide(now, "model", f"not chosen again: {error}")
            found = self._updated(known, rows, False)
        done = f"updated with {found.rows} rows" + ("" if why is None else f" and chosen again because {why}")
        self.take(found.model, now, done, self.homes, chosen=why is not None)
        self._decide(now, "model", f"{done}: {found.model.words()}")

    def _updated(self, model: Model, rows: Released, choose_again: bool) -> current.Update:
        rules = self._rules.model
        return current.update(
            model, rows, half_life=rules.half_life, window=rules.window, choose_again=choose_again,
            holidays=self._holidays(rows.time),
        )  # fmt: skip

    def _first_model(self, rows: Released, now: float) -> None:
        calendar = Calendar(
            step=self._rules.collect.step, timezone=self._rules.model.timezone,
            season=season_steps(SEASON, self._rules.collect.step),
        )  # fmt: skip
        train = int(TRAIN * len(rows))
        inputs = rows.inputs(calendar, train)
        choice = choose(inputs, rows.state, rows.time, calendar, holidays=self._holidays(rows.time))
        model = current.chosen_model(choice, rows, train)
        if model.record is None:
            raise DataError(f"{len(rows)} rows have no day without a gap to judge a model by: collect more")
        found = self._updated(model, rows, False)
        self.take(found.model, now, f"made of the first {len(rows)} rows", self.homes, chosen=True)
        self._decide(now, "model", f"made of the first {len(rows)} rows: {found.model.words()}")

    def _holidays(self, time: pd.DatetimeIndex) -> frozenset[date]:
        return days_of(self._rules.model.holidays, time)

    def _why_choose(self, now: float) -> str | None:
        """Why order and day types are due to be chosen again; None where they are not."""
        age = now - (0.0 if self.row is None else self.row.chosen)
        if age >= self._rules.model.choose_every.total_seconds():
            return f"the last choice is {age / DAY:.0f} days old"
        return self.poor() if age >= AGAIN.total_seconds() else None

    def poor(self) -> str | None:
        """Why forecasts are not good enough; None where they are."""
        newest, alarms = self._record.newest(), self._rules.alarms
        found = None if newest is None else self._record.judged(int(newest - JUDGED.total_seconds()))
        if found is None or found.forecasts < LEAST_JUDGED:
            return None
        expected = self.expected_error()
        if expected is not None and found.rmse_k > alarms.error_above * expected:
            return f"the error 24 h ahead is {found.rmse_k:.2f} K, {expected:.2f} K was expected"
        if found.inside is not None and found.inside < alarms.coverage_below:
            return f"{100 * found.inside:.0f} % of the forecasts 24 h ahead were inside their 80 % band"
        return None

    def expected_error(self) -> float | None:
        """24 h ahead and without a load plan, as the desk forecasts, when the model was chosen. [K]"""
        record = None if self.model is None else self.model.record
        return None if record is None else float(np.sqrt((record.expected["unplanned"][:, -1] ** 2).mean()))

    def watch_drift(self, now: float) -> None:
        """Which coefficients have left their band over the rows of the model; worked out once a week."""
        if self.model is None or within(self._drift[0], now, DRIFT_EVERY):
            return
        self._drift = (now, [])
        with contextlib.suppress(UsageError):  # too few rows for two windows
            self._drift = (now, list(drift(self.model).warnings))

    def words(self) -> str:
        if self.model is not None:
            return self.model.words()
        rows, needed = self._record.count(), self._rules.model.first_after / self._rules.collect.step
        return f"There is no model yet: {rows} of the {needed:.0f} rows that the first one is made of are there."

    def state(self) -> ModelState | None:
        model, row, newest = self.model, self.row, self._record.newest()
        if model is None or row is None:
            return None
        judged = None if newest is None else self._record.judged(int(newest - JUDGED.total_seconds()))
        return ModelState(
            words=model.words(), hash=row.hash, made=row.made, chosen=row.chosen,
            until=None if model.until is None else model.until.timestamp(), homes=row.agents, why=row.why,
            expected_rmse_24h_k=self.expected_error(), rmse_24h_k=None if judged is None else judged.rmse_k,
            load_rmse_24h_kw=None if judged is None else judged.load_rmse_kw,
            inside_80=None if judged is None else judged.inside,
            forecasts_judged=0 if judged is None else judged.forecasts, notes=self._drift[1],
        )  # fmt: skip

    def to_json(self) -> str | None:
        """The model in use, as model.json."""
        return None if self.model is None else self.model.to_json()


def _with_late_rows(model: Model, rows: Released) -> Model:
    """The model with rows of its own time that came after it was made."""
    if model.released is None or model.until is None:
        return model
    known = model.released.filled_by(rows.between(model.released.time[0], model.until))
    return replace(model, released=known, trained=int(known.time.searchsorted(model.until, side="right")))


def within(when: float, now: float, length: pd.Timedelta) -> bool:
    """Whether something happened so recently; a moment that is still to come is one of a clock that was set back."""
    return 0.0 <= now - when < length.total_seconds()


def check_first(model: Model, rules: ServiceRules) -> int:
    """The homes of a model to begin with; refuses one that a desk cannot go on from."""
    if model.step != rules.collect.step:
        raise UsageError(
            f"the model has steps of {spell(model.step)}, the rules {spell(rules.collect.step)}: use another"
        )
    if model.released is None or model.record is None or model.origin is None or not model.released.equal:
        raise UsageError(
            "a desk begins with model.json of `atdm aggregator` with equal weights and a week of rows, or none"
        )
    return len(model.origin.company)
