"""What can be wrong at a desk: what each alarm means, and what to do. docs/operate.md has the same table."""

from dataclasses import dataclass

from atdm.deploy.record import AlarmRow
from atdm.deploy.service_state import Alarm


@dataclass(frozen=True, slots=True)
class AlarmKind:
    """What an alarm means, and what to do."""

    meaning: str
    remedy: str
    failure: bool = False  # the desk is not doing its work


ALARMS = {
    "record": AlarmKind(
        "The record cannot be written or read: what homes showed is held in memory alone, nobody is asked for more.",
        "Free the disk, mend it or the permissions of the record's folder. The desk goes on by itself.", failure=True,
    ),
    "rows": AlarmKind(
        "Nothing new was learned of the cluster: forecasts start from an old row and grow worse.",
        "See the last askings for the reason: the NATS server, too few homes, or homes whose readings are late.",
        failure=True,
    ),
    "run": AlarmKind(
        "The last asking brought no rows. They are asked for again at the next one.",
        "Nothing, if it happens now and then. If it stays: check the NATS server, the roster and the homes named.",
    ),
    "homes": AlarmKind(
        "The mean is that of fewer homes; when fewer are left than agents ask for, nothing can be collected.",
        "Call the homes that are silent. Homes that were left out come back with the next block of 28 days.",
    ),
    "weather": AlarmKind(
        "Without weather there is no forecast, and rows it does not cover do not improve the model.",
        "See that the weather file is written in time, with the rows forecast; it is read again when it changes.",
    ),
    "model": AlarmKind(
        "The model no longer follows the cluster: forecasts grow worse.",
        "See the last decisions for the reason. Rows, weather or both are missing, or the rows do not determine one.",
    ),
    "forecast": AlarmKind(
        "There is no forecast, or an old one.",
        "See its words: usually the weather ends too early, or the last rows are missing.", failure=True,
    ),
    "quality": AlarmKind(
        "The cluster behaves unlike the rows the model comes from: holidays, new occupants, another season.",
        "Nothing at first: order and day types are chosen again by themselves, at most once a week.",
    ),
    "clock": AlarmKind(
        "The clock of this machine was set back; rows after it are asked for as it comes to them again.",
        "Let the machine keep time over the network (NTP).",
    ),
    "sinks": AlarmKind(
        "Results did not reach a place they are sent to. Nothing else suffers.",
        "See its words; it is tried again with the next forecast.",
    ),
}  # fmt: skip


def explained(row: AlarmRow) -> Alarm:
    kind = ALARMS[row.name]
    return Alarm(
        name=row.name, since=row.since, words=row.words, meaning=kind.meaning, remedy=kind.remedy, failure=kind.failure
    )
