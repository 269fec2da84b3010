"""The fitted model as people keep and use it: coefficients with their clock, saved as JSON, simulated on weather."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from atdm.data.clock import segments
from atdm.errors import DataError, UsageError
from atdm.kernel.design import COEFFICIENTS, INPUTS, UNITS, Inputs
from atdm.kernel.thermal import Coefficients, free_run
from atdm.model.bands import Record
from atdm.model.calendar import Calendar
from atdm.model.released import Released
from atdm.types import FloatArray

SCHEMA = "atdm-model/3"
RUN_BYTES = 32  # of the id of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The run that released a model: what agents need to know to be asked for later rows. Nothing of it is secret."""

    run: bytes  # its id; empty where its rows were collected with equal weights
    company: tuple[str, ...]  # identity keys of those in it, in hex
    end: pd.Timestamp  # last row of its window

    @property
    def weights(self) -> str:
        return "fitted" if self.run else "equal"

    def as_dict(self) -> dict[str, Any]:
        return {"run": self.run.hex(), "company": list(self.company), "end": self.end.isoformat()}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "Origin":
        run, end = bytes.fromhex(saved["run"]), pd.Timestamp(saved["end"]).tz_convert("UTC")
        if len(run) not in (0, RUN_BYTES) or pd.isna(end):
            raise ValueError("no origin of a model")
        return cls(run=run, company=tuple(str(name) for name in saved["company"]), end=end)


Made = Literal["estimated", "chosen", "refined", "planning"]
MADE: dict[Made, str] = {
    "estimated": "as the protocol estimated it",
    "chosen": "chosen on training rows",
    "refined": "chosen on training rows and refined on its forecasts of 24 h",
    "planning": "for planning: its response to load was found in the training rows, or stated",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """An earlier state of a model that was updated, and how far off it was until it was replaced.

    Attributes
    ----------
    until : pandas.Timestamp
        The last row it was estimated on.
    words : str
        Which model it was.
    coefficients : dict
        By name, as in `Model.as_dict`.
    rmse : dict
        "1h", "6h", "24h" → error on rows it had not seen [K].
    """

    until: pd.Timestamp
    words: str
    coefficients: dict[str, list[float]]
    rmse: dict[str, float | None]

    def as_dict(self) -> dict[str, Any]:
        """As model.json has it."""
        return {"until": self.until.isoformat(), "words": self.words, "rmse_k": self.rmse, **self.coefficients}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "Version":
        """What `as_dict` gave.

        Parameters
        ----------
        saved : dict
            A version in a model file.

        Returns
        -------
        Version
            The same.
        """
        return cls(
            until=pd.Timestamp(saved["until"]).tz_convert("UTC"),
            words=str(saved["words"]),
            coefficients={name: [float(v) for v in saved[name]] for name in COEFFICIENTS},
            rmse={str(name): None if value is None else float(value) for name, value in saved["rmse_k"].items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """The model, Eq. (2), and what forecasts, updates and planning need beside it.

    s_t = Σ α_m s_{t−m} + Σ (β_m h_{t−m} + γ_m o_{t−m} + θ_m r_{t−m}) + occ_{calendar(t)}

    Occupancy has the P values of a day (or another season), one profile after the other where day types are apart.

    Attributes
    ----------
    coefficients : Coefficients
        α, β, γ, θ and occupancy.
    calendar : Calendar
        Step, clock, season and day types.
    made : {"estimated", "chosen", "refined"}
        As the protocol estimated it, chosen on training rows, or chosen and refined on its forecasts of 24 h.
    released : Released or None
        The rows it comes from: what bands, limits of the load and updates need.
    trained : int
        How many of these rows it was estimated on.
    record : Record or None
        How far off its forecasts were, for the bands.
    versions : tuple of Version
        Earlier versions and their errors, the oldest first.
    origin : Origin or None
        The run that released the model, where its agents still exist.
    """

    coefficients: Coefficients
    calendar: Calendar
    made: Made = "estimated"
    released: Released | None = None
    trained: int = 0
    record: Record | None = None
    versions: tuple[Version, ...] = ()
    origin: Origin | None = None

    @property
    def step(self) -> pd.Timedelta:
        """Length of one step."""
        return self.calendar.step

    @property
    def timezone(self) -> str:
        """The clock whose midnight starts a day."""
        return self.calendar.timezone

    @property
    def season(self) -> int:
        """P: steps of one profile."""
        return self.calendar.season

    @property
    def until(self) -> pd.Timestamp | None:
        """The last row it was estimated on."""
        return None if self.released is None or not self.trained else self.released.time[self.trained - 1]

    def for_planning(self, coefficients: Coefficients, calendar: Calendar) -> "Model":
        """The planning model of the same rows.

        Parameters
        ----------
        coefficients : Coefficients
            Those that were found for planning.
        calendar : Calendar
            Theirs.

        Returns
        -------
        Model
            With the rows of this one, and no record of errors.
        """
        return replace(self, coefficients=coefficients, calendar=calendar, made="planning", record=None, versions=())

    def of_size(self, ratio: float) -> "Model":
        """The same cluster with more or fewer homes like those it has: its load times `ratio`, its answer to a kW less.

        Parameters
        ----------
        ratio : float
            Homes then over homes now [-].

        Returns
        -------
        Model
            With the same temperatures; earlier versions are as they were.
        """
        rows = None if self.released is None else replace(self.released, load=self.released.load * ratio)
        record = None if self.record is None else self.record.of_size(ratio)
        same = replace(self.coefficients, beta=self.beta / ratio)
        return replace(self, coefficients=same, released=rows, record=record)

    def words(self) -> str:
        """Which model this is, for people."""
        return f"order {self.order}, {self.calendar.words()}, {MADE[self.made]}"

    @property
    def alpha(self) -> FloatArray:
        """α, M values: retention of the aggregate temperature [-]."""
        return self.coefficients.alpha

    @property
    def beta(self) -> FloatArray:
        """β, M + 1 values: response to heating power [K/kW]."""
        return self.coefficients.beta

    @property
    def gamma(self) -> FloatArray:
        """γ, M + 1 values: pull of the outdoor temperature [-]."""
        return self.coefficients.gamma

    @property
    def theta(self) -> FloatArray:
        """θ, M + 1 values: response to solar irradiance [K/(kW/m²)]."""
        return self.coefficients.theta

    @property
    def occupancy(self) -> FloatArray:
        """P values: what the k-th step after midnight adds [K]."""
        return self.coefficients.occupancy

    @property
    def order(self) -> int:
        """M: how many past steps the model looks back."""
        return self.coefficients.order

    @property
    def period(self) -> int:
        """P: steps in one season."""
        return self.coefficients.period

    def as_dict(self) -> dict[str, list[float]]:
        """The coefficients as lists, by name."""
        return {name: getattr(self.coefficients, name).tolist() for name in COEFFICIENTS}

    def inputs(self, load: pd.Series | FloatArray, weather: pd.DataFrame, train: int = 0) -> Inputs:
        """The model's inputs on the clock of the weather.

        Parameters
        ----------
        load : pandas.Series or array
            Heating power of the whole cluster, aligned by time (Series) or position (array) [kW].
        weather : pandas.DataFrame
            outdoor_temp_c [°C] and solar_w_m2 [W/m²], indexed by zone-aware stamps or with a `time` column.
        train : int, default 0
            How many rows are for training.

        Returns
        -------
        Inputs
            Load (as heat, where it is electricity: Eq. 7), outdoor temperature and sun by row, with the season's index
            and the gap-free segments.
        """
        frame = weather.set_index("time") if "time" in weather.columns else weather
        for column in ("outdoor_temp_c", "solar_w_m2"):
            if column not in frame.columns:
                raise DataError(f"weather has no column {column}: it needs time, outdoor_temp_c, solar_w_m2")
        index = pd.DatetimeIndex(frame.index)
        if index.tz is None:
            raise DataError("weather time stamps have no time zone: localise them, e.g. to UTC")
        power = load.reindex(index) if isinstance(load, pd.Series) else pd.Series(np.asarray(load, float), index=index)
        table = pd.DataFrame(
            {"load": power, "outdoor": frame["outdoor_temp_c"], "solar": frame["solar_w_m2"] / 1000.0}, dtype=float
        )
        bad = table[~np.isfinite(table.to_numpy()).all(axis=1)]
        if len(bad):
            raise DataError(f"load or weather has no value at {bad.index[0]} ({len(bad)} rows): complete the inputs")
        return Inputs(
            load=table["load"].to_numpy() * self.heat_of_one_kw(frame),
            outdoor=table["outdoor"].to_numpy(),
            solar=table["solar"].to_numpy(),
            phase=self.calendar.phase(index),
            segment=segments(index, self.step),
            period=self.calendar.period,
            train=train,
        )

    def heat_of_one_kw(self, weather: pd.DataFrame) -> FloatArray:
        """What one kW of load heats in this weather, over what it heats at the mean outdoor temperature.

        Parameters
        ----------
        weather : pandas.DataFrame
            outdoor_temp_c [°C] by row.

        Returns
        -------
        array of float
            By row; ones where the load is heat [-].
        """
        outdoor = weather["outdoor_temp_c"].to_numpy(float)
        cop = None if self.released is None else self.released.cop
        return np.ones(len(outdoor)) if cop is None else cop.factor(outdoor)

    def simulate(self, load: pd.Series | FloatArray, weather: pd.DataFrame, initial: FloatArray) -> pd.Series:
        """Free run: the first M values are given, all later ones are the model alone.

        Parameters
        ----------
        load : pandas.Series or array
            Heating power of the whole cluster, aligned to the weather by time (Series) or position (array) [kW].
        weather : pandas.DataFrame
            outdoor_temp_c [°C] and solar_w_m2 [W/m²], indexed by zone-aware stamps or with a `time` column.
        initial : array of float
            The first M aggregate temperatures [°C].

        Returns
        -------
        pandas.Series
            Aggregate temperature on the rows of `weather` [°C].

        Raises
        ------
        UsageError
            `initial` has not M values, or there are fewer than M rows.
        DataError
            The weather or the load lacks a value, or the weather has a gap.
        """
        inputs = self.inputs(load, weather)
        given = np.asarray(initial, dtype=float)
        if given.shape != (self.order,) or not np.isfinite(given).all():
            raise UsageError(f"initial has shape {given.shape}: give the first {self.order} aggregate temperatures")
        if len(inputs) < self.order:
            raise UsageError(f"{len(inputs)} rows of weather: give at least {self.order}")
        if inputs.segment[-1] != 0:
            raise DataError("weather has a gap: simulate each gap-free part on its own")
        state = np.concatenate([given, np.full(len(inputs) - self.order, np.nan)])
        index = pd.DatetimeIndex(weather["time"] if "time" in weather.columns else weather.index, name="time")
        run = free_run(self.coefficients, inputs, state, 0, len(inputs))
        return pd.Series(run, index=index, name="aggregate_temp_c")

    def to_json(self) -> str:
        """The model as the text of model.json."""
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "made": self.made,
            **self.calendar.as_dict(),
            "units": UNITS,
            **self.as_dict(),
        }
        if self.released is not None:
            document["released"] = {"trained": self.trained, **self.released.as_dict(self.step)}
        if self.record is not None:
            document["record"] = self.record.as_dict()
        if self.versions:
            document["versions"] = [version.as_dict() for version in self.versions]
        if self.origin is not None:
            document["origin"] = self.origin.as_dict()
        lines = (f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in document.items())
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as JSON; the file appears whole or not at all.

        Parameters
        ----------
        path : str or path-like
            The file to write.
        """
        target = Path(path)
        partial = target.with_name(target.name + ".partial")
        partial.write_text(self.to_json(), encoding="utf-8")
        partial.replace(target)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Model":
        """Read what `save` wrote.

        Parameters
        ----------
        path : str or path-like
            A model.json.

        Returns
        -------
        Model
            The model in the file.

        Raises
        ------
        DataError
            The file is missing, is no model, or has another schema version.
        """
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"), str(path))
        except UnicodeDecodeError:
            raise DataError(f"{path}: not a model file: give a model.json written by atdm fit") from None
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}): give a model.json written by atdm") from None

    @classmethod
    def from_json(cls, text: str, path: str = "model") -> "Model":
        """What `to_json` gave.

        Parameters
        ----------
        text : str
            The text of a model.json.
        path : str, default "model"
            Where it comes from, for errors.

        Returns
        -------
        Model
            The model in the text.

        Raises
        ------
        DataError
            It is no model, or has another schema version.
        """
        try:
            document: dict[str, Any] = json.loads(text)
            if document["schema"] != SCHEMA:
                raise DataError(f"{path}: schema {document['schema']!r} where {SCHEMA!r} is read: refit the model")
            values = {name: np.asarray(document[name], dtype=float) for name in COEFFICIENTS}
            calendar = Calendar.from_dict(document)
            rows, step = document.get("released"), calendar.step
            model = cls(
                coefficients=Coefficients(**values),
                calendar=calendar,
                made=document["made"],
                released=None if rows is None else Released.from_dict(rows, step),
                trained=0 if rows is None else int(rows["trained"]),
                record=Record.from_dict(document["record"], step) if "record" in document else None,
                versions=tuple(Version.from_dict(saved) for saved in document.get("versions", [])),
                origin=Origin.from_dict(document["origin"]) if "origin" in document else None,
            )
            sizes = [len(gains) for gains in model.coefficients.gains()]
            sound = model.made in MADE and 0 <= model.trained <= (0 if model.released is None else len(model.released))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, UsageError):
            raise DataError(f"{path}: not a model file: give a model.json written by atdm fit") from None
        sound = sound and all(np.isfinite(v).all() and v.ndim == 1 and len(v) for v in values.values())
        if not sound or sizes != [model.order + 1] * len(INPUTS) or model.period != calendar.period:
            raise DataError(f"{path}: coefficients do not belong together: give a model.json written by atdm fit")
        return model
