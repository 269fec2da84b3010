"""What an import did, line by line: nothing is guessed, converted, moved or left out without a line here."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

ONE_BY_ONE = 2  # files with the same line that are named one by one; more are counted


class Kind(StrEnum):
    """What a line of the account is about."""

    GUESSED = "guessed"  # nobody said so: look at it, and declare it if it is wrong
    DECLARED = "declared"
    DID = "did"
    LEFT_OUT = "left out"
    SUSPICIOUS = "suspicious"  # imported as it is; somebody should look at it


@dataclass(frozen=True, slots=True)
class Line:
    """One thing an import did.

    Attributes
    ----------
    kind : Kind
        Guessed, declared, did, left out, or suspicious.
    where : str
        The file, home or table it is about.
    what : str
        In words.
    """

    kind: Kind
    where: str
    what: str

    def as_dict(self) -> dict[str, str]:
        """The line for `--json`."""
        return {"kind": str(self.kind), "where": self.where, "what": self.what}


@dataclass(slots=True)
class Account:
    """What an import did.

    Attributes
    ----------
    lines : list of Line
        In the order in which they came.
    """

    lines: list[Line] = field(default_factory=list)

    def say(self, kind: Kind, where: str, what: str) -> None:
        """Write a line, once.

        Parameters
        ----------
        kind : Kind
            What it is about.
        where : str
            The file, home or table.
        what : str
            In words.
        """
        line = Line(kind, where, what)
        if line not in self.lines[-200:]:  # a workbook says the same for each of its sheets
            self.lines.append(line)

    def of(self, kind: Kind) -> tuple[Line, ...]:
        """The lines of one kind.

        Parameters
        ----------
        kind : Kind
            Which.

        Returns
        -------
        tuple of Line
            In the order in which they came.
        """
        return tuple(line for line in self.lines if line.kind is kind)

    def text(self) -> str:
        """The lines for a person: what holds for many files is said once."""
        return "\n".join(self._said())

    def _said(self) -> Iterator[str]:
        alike: dict[tuple[Kind, str], list[str]] = {}
        for line in self.lines:
            alike.setdefault((line.kind, line.what), []).append(line.where)
        for (kind, what), places in alike.items():
            named = ", ".join(places) if len(places) <= ONE_BY_ONE else f"{places[0]} and {len(places) - 1} more"
            yield f"{kind}: {named}: {what}"
