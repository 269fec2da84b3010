"""The fitted model as people keep and use it: coefficients with their clock, saved as JSON, simulated on weather."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from atdm.data.clock import phase, segments, zone
from atdm.errors import DataError, UsageError
from atdm.kernel.design import COEFFICIENTS, INPUTS, UNITS, Inputs
from atdm.kernel.thermal import Coefficients, free_run
from atdm.model.bands import Training
from atdm.types import FloatArray

SCHEMA = "atdm-model/2"
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """The fitted model, Eq. (2), and what forecasts need beside it.

    s_t = Σ α_m s_{t−m} + Σ (β_m h_{t−m} + γ_m o_{t−m} + θ_m r_{t−m}) + occ_{t mod P}

    Attributes
    ----------
    coefficients : Coefficients
        α, β, γ, θ and occupancy.
    step : pandas.Timedelta
        Length of one step.
    timezone : str
        IANA name of the clock whose midnight starts the season.
    training : Training or None
        What bands and the limits of flexibility need of the training rows.
    origin : Origin or None
        The run that released the model, where its agents still exist.
    """

    coefficients: Coefficients
    step: pd.Timedelta
    timezone: str
    training: Training | None = None
    origin: Origin | None = None

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
            Load, outdoor temperature and sun by row, with the season's index and the gap-free segments.
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
            load=table["load"].to_numpy(),
            outdoor=table["outdoor"].to_numpy(),
            solar=table["solar"].to_numpy(),
            phase=phase(index, self.step, self.timezone, self.period),
            segment=segments(index, self.step),
            period=self.period,
            train=train,
        )

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
            "step_seconds": self.step.total_seconds(),
            "timezone": self.timezone,
            "units": UNITS,
            **self.as_dict(),
        }
        if self.training is not None:
            document["training"] = self.training.as_dict()
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
            document: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
            if document["schema"] != SCHEMA:
                raise DataError(f"{path}: schema {document['schema']!r} where {SCHEMA!r} is read: refit the model")
            values = {name: np.asarray(document[name], dtype=float) for name in COEFFICIENTS}
            model = cls(
                coefficients=Coefficients(**values),
                step=pd.Timedelta(seconds=document["step_seconds"]),
                timezone=str(document["timezone"]),
                training=Training.from_dict(document["training"]) if "training" in document else None,
                origin=Origin.from_dict(document["origin"]) if "origin" in document else None,
            )
            zone(model.timezone)
            m1, sizes = model.order + 1, [len(gains) for gains in model.coefficients.gains()]
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}): give a model.json written by atdm") from None
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, UsageError):
            raise DataError(f"{path}: not a model file: give a model.json written by atdm fit") from None
        sound = all(np.isfinite(v).all() and v.ndim == 1 and len(v) for v in values.values())
        sound = sound and model.step > pd.Timedelta(0)
        if model.training is not None:
            sound = sound and model.training.fits(model.coefficients)
        if sizes != [m1] * len(INPUTS) or not sound:
            raise DataError(f"{path}: coefficients do not belong together: give a model.json written by atdm fit")
        return model
