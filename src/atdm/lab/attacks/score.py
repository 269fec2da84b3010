"""Findings, and the scorer: the only place where an attack's claim meets the data.

An agent counts as recovered when a reconstruction, matched one to one to agents (Hungarian), correlates at |r| > 0.9
with the agent-specific part of its temperature: the series minus the cluster mean, the mean regressed out. Where an
attack says itself whom a claim is about, there is nothing to match: all its claims together must then leave less than
1 − 0.9² of the square error that the mean of all agents leaves. The baseline is the best affine guess of each agent's
series from s, h and the weather, fitted in hindsight.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from atdm.types import FloatArray, IntArray

RECOVERED = 0.9  # |r| above which an agent counts as recovered


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One attack by one adversary on one protocol.

    An agent counts as recovered when the attack's series correlates at abs(r) > 0.9 with the part of the agent's
    temperature that the mean of the cluster does not explain.

    Attributes
    ----------
    attack : str
        Its name.
    protocol : str
        The protocol attacked.
    weights : {"fitted", "equal"}
        How the aggregate temperature was weighted.
    adversary : str
        "aggregator", "aggregator+1", …, "agent", "dishonest aggregator" or "dishonest aggregator+1".
    agents : int
        Agents of the cluster; those on the adversary's side are never counted as recovered.
    recovered : int
        Agents recovered.
    blank : int
        Agents that the same attack recovers without any sum: what chance and weather do.
    rmse_c : float
        Error on the recovered agents; where there are none, that of the baseline [K].
    baseline_rmse_c : float
        Error on the same agents of the best affine guess from what is released and the weather [K].
    seconds : float
        Time of the attack, without the run it attacks [s].
    note : str, default ""
        Remarks.
    """

    attack: str
    protocol: str
    weights: str
    adversary: str
    agents: int
    recovered: int
    blank: int
    rmse_c: float
    baseline_rmse_c: float
    seconds: float
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The finding for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """What an attack claims: one column per supposed agent."""

    series: FloatArray  # rows × m                                                      [°C, centred, or free]
    rows: IntArray | None = None  # rows of the fit it covers; None: the first ones
    scaled: bool = True  # in K from the reference; otherwise offset and scale are left open
    differences: bool = False  # from row to row, where levels are not claimed
    about: tuple[int, ...] = ()  # places of the agents that the columns are about, NaN where nothing is claimed;
    # empty: whose they are is not claimed
    note: str = ""


NOTHING = Guess(series=np.empty((0, 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The data, for the scorer alone."""

    series: FloatArray  # N × agents attacked, centred                                  [K]
    public: FloatArray  # N × p: s, h, outdoor, solar
    agents: int  # of the cluster
    without_places: tuple[int, ...] = ()  # agents on the adversary's side

    def without(self, agents: Sequence[int]) -> "Truth":
        """For an adversary that has these agents on its side: their own series are no discovery."""
        return replace(self, series=np.delete(self.series, list(agents), axis=1), without_places=tuple(agents))

    def columns(self, guess: Guess) -> list[int]:
        """Those of the agents that a guess is about."""
        return [place - sum(gone < place for gone in self.without_places) for place in guess.about]

    def baseline_errors(self) -> FloatArray:
        """Mean square error of the baseline, agent by agent. [K²]"""
        columns = np.column_stack([np.ones(len(self.public)), self.public])
        left = self.series - columns @ np.linalg.lstsq(columns, self.series, rcond=None)[0]
        errors: FloatArray = (left**2).mean(axis=0)
        return errors

    def specific_correlations(self, guess: Guess) -> FloatArray:
        """|r| between the agent-specific parts of truth and claim, K × m."""
        truth, claim = self._aligned(guess)
        mean = truth.mean(axis=1)
        a, b = _specific(truth, mean), _specific(claim, mean)
        answer: FloatArray = np.abs(a.T @ b)
        return answer

    def _aligned(self, guess: Guess) -> tuple[FloatArray, FloatArray]:
        rows = np.arange(len(guess.series)) if guess.rows is None else guess.rows
        if guess.differences:
            return self.series[rows] - self.series[rows - 1], guess.series
        return self.series[rows], guess.series

    def matches(self, guess: Guess) -> list[tuple[int, int, float]]:
        """(agent, column, |r|) of the best one-to-one matching."""
        if guess.series.size == 0:
            return []
        if guess.about:
            left, mean = self.squares(guess)
            explained = float(np.sqrt(max(0.0, 1.0 - left / mean)))
            return [(i, j, explained) for j, i in enumerate(self.columns(guess))]
        r = self.specific_correlations(guess)
        agents, columns = linear_sum_assignment(-r)
        return [(int(i), int(j), float(r[i, j])) for i, j in zip(agents, columns, strict=True)]

    def squares(self, guess: Guess) -> tuple[float, float]:
        """Mean square error of claims about chosen agents, and of the mean of all in their place. [K²]"""
        truth, claim = self._aligned(guess)
        own, mean = truth[:, self.columns(guess)], truth.mean(axis=1, keepdims=True)
        claimed = np.isfinite(claim)
        return float(((own - claim)[claimed] ** 2).mean()), float(((own - mean)[claimed] ** 2).mean())

    def errors(self, guess: Guess, pairs: list[tuple[int, int]]) -> FloatArray:
        """Mean square error of matched columns. [K²]"""
        truth, claim = self._aligned(guess)
        rows = np.arange(len(claim)) if guess.rows is None else guess.rows
        found = []
        for i, j in pairs:
            x, y = truth[:, i], claim[:, j]
            if not guess.scaled:  # the claim on top of what the baseline knows
                columns = np.column_stack([np.ones(len(y)), self.public[rows], y])
                y = columns @ np.linalg.lstsq(columns, x, rcond=None)[0]
            found.append(float(np.nanmean((x - y) ** 2)))
        return np.array(found)


def _specific(series: FloatArray, mean: FloatArray) -> FloatArray:
    """Centred, the mean regressed out, unit norm; zero where nothing is left."""
    m = mean - mean.mean()
    size = float(m @ m)
    centred = series - series.mean(axis=0)
    if size > 0:
        centred = centred - np.outer(m, m @ centred) / size
    norms = np.linalg.norm(centred, axis=0)
    reference = np.linalg.norm(series, axis=0)
    sound = norms > 1e-12 * np.where(reference > 0, reference, 1.0)
    answer: FloatArray = np.where(sound, centred / np.where(sound, norms, 1.0), 0.0)
    return answer


def recovered(truth: Truth, guess: Guess) -> int:
    return sum(r > RECOVERED for *_, r in truth.matches(guess))


def best(truth: Truth, guesses: list[Guess]) -> Guess:
    """Of several variants of one attack the one that recovers most: the audit sides with the attacker."""
    return max(guesses, key=lambda g: (recovered(truth, g), -len(g.note)), default=NOTHING)


def includes(stronger: str, weaker: str) -> bool:
    """Whether one adversary can do whatever another can: the same party with as many agents on its side, or more."""
    (party, more), (other, fewer) = (who.partition("+")[::2] for who in (stronger, weaker))
    return int(more or 0) >= int(fewer or 0) and other in (party, party.removeprefix("dishonest "))


def score(
    truth: Truth,
    guess: Guess,
    *,
    attack: str,
    protocol: str,
    weights: str,
    adversary: str,
    seconds: float,
    blank: list[Guess],
    note: str = "",
) -> Finding:
    """blank: what the same attack claims where it is given no sum."""
    matched = truth.matches(guess)
    pairs = [(i, j) for i, j, r in matched if r > RECOVERED]
    baseline = truth.baseline_errors()
    hit = [i for i, _ in pairs]
    floor = float(np.sqrt(baseline[hit].mean() if hit else baseline.mean()))
    strongest = max((r for *_, r in matched), default=0.0)
    remarks = [text for text in (guess.note, note) if text]
    if guess.about and guess.series.size:
        left, mean = truth.squares(guess)
        remarks.append(f"off by {left**0.5:.2g} K, the mean of all by {mean**0.5:.2g} K")
    elif not pairs and matched:
        remarks.append(f"highest |r| {strongest:.2f}")
    return Finding(
        attack=attack,
        protocol=protocol,
        weights=weights,
        adversary=adversary,
        agents=truth.agents,
        recovered=len(pairs),
        blank=recovered(truth, best(truth, blank)),
        rmse_c=float(np.sqrt(truth.errors(guess, pairs).mean())) if pairs else floor,
        baseline_rmse_c=floor,
        seconds=seconds,
        note="; ".join(remarks),
    )
