"""An experiment as files: a table for `atdm fit --probed`, a calendar for people, an automation for Home Assistant."""

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from atdm.use.probe import Probe

TICK = 5  # minutes after which the automation looks again; a part of an hour
LINE = 75  # octets of a line of iCalendar, RFC 5545 §3.1


def probe_files(probe: Probe, entities: Sequence[str] = ()) -> dict[str, str]:
    """Name → content of everything `atdm probe` writes; entities: thermostats as Home Assistant names them."""
    return {
        "probe.csv": probe.blocks.to_csv(index=False, date_format="%Y-%m-%dT%H:%M:%SZ"),
        "probe.ics": calendar(probe),
        "home-assistant.yaml": automation(probe, entities),
    }


def calendar(probe: Probe) -> str:
    """iCalendar (RFC 5545): one event for each block that moves the set points."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//atdm//probe//EN"]
    for number, (start, stop, offset) in enumerate(_blocks(probe)):
        if not offset:
            continue
        lines += [
            "BEGIN:VEVENT",
            f"UID:atdm-probe-{probe.seed}-{_utc(probe.blocks['time'][0])}-{number}",
            f"DTSTAMP:{_utc(start)}",
            f"DTSTART:{_utc(start)}",
            f"DTEND:{_utc(stop)}",
            f"SUMMARY:Set points {offset:+g} K",
            "DESCRIPTION:Move every set point of the cluster by this much\\, and back at the end.",
            "TRANSP:TRANSPARENT",
            "END:VEVENT",
        ]
    return "".join(_folded(line) + "\r\n" for line in [*lines, "END:VCALENDAR"])


def automation(probe: Probe, entities: Sequence[str] = ()) -> str:
    """One automation: at the start of each block the set point becomes the usual one plus the block's offset.

    Every TICK minutes it asks whether a block has begun since the last time, so a start may be at any second, and each
    is acted on once: who turns a thermostat by hand is not overruled until the next. When Home Assistant starts, what
    it missed is made up for, until a day after the end: a restart must not touch set points for ever.
    """
    starts = {_utc(start): offset for start, _, offset in _blocks(probe)}
    last = _utc(probe.blocks["until"].iloc[-1])
    low, high = probe.comfort or (5.0, 30.0)
    usual = 20.0 if probe.setpoint is None else probe.setpoint
    document: dict[str, Any] = {
        "alias": "atdm probe",
        "description": "Moves set points by the plan in probe.csv; at its end they return. Set `usual` to your own.",
        "mode": "single",
        "triggers": [
            {"trigger": "time_pattern", "minutes": f"/{TICK}"},
            {"trigger": "homeassistant", "event": "start", "id": "restart"},
        ],
        "variables": {
            "usual": usual, "low": low, "high": high, "offsets": {**starts, last: 0.0},
            "until": _utc(probe.blocks["until"].iloc[-1] + pd.Timedelta("1D")),
            "now_utc": "{{ utcnow().strftime('%Y%m%dT%H%M00Z') }}",
            "tick_before": f"{{{{ (utcnow() - timedelta(minutes={TICK})).strftime('%Y%m%dT%H%M00Z') }}}}",
            "block": "{{ offsets | select('le', now_utc) | sort | last | default('') }}",
        },
        "conditions": [{
            "condition": "template",
            "value_template": "{{ block != '' and (block > tick_before or "
            "(trigger.id == 'restart' and now_utc < until)) }}",
        }],
        "actions": [{
            "action": "climate.set_temperature",
            "target": {"entity_id": list(entities) or ["climate.your_thermostat"]},
            "data": {"temperature": "{{ [[usual + offsets[block], high] | min, low] | max }}"},
        }],
    }  # fmt: skip
    # JSON is YAML: one item a line keeps it readable without a YAML library
    lines = [f"- {json.dumps('alias')}: {json.dumps(document.pop('alias'))}"]
    lines += [f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in document.items()]
    return "\n".join(lines) + "\n"


def probe_table(probe: Probe) -> RenderableType:
    """The plan by day."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    local = probe.blocks["time"].dt.tz_convert(probe.timezone)
    slots = list(dict.fromkeys(local.dt.strftime("%H:%M")))
    table.add_column(f"day, {probe.timezone}")
    for slot in slots:
        table.add_column(slot, justify="right")
    for day, rows in probe.blocks.assign(local=local).groupby(local.dt.strftime("%Y-%m-%d"), sort=True):
        cells = dict(zip(rows["local"].dt.strftime("%H:%M"), rows["setpoint_offset_k"], strict=True))
        table.add_row(str(day), *(f"{cells[slot]:+g} K" if slot in cells else "" for slot in slots))
    end = Text(
        f"\n{len(probe.blocks)} blocks, set points moved for {probe.hours_moved:g} h; keep probe.csv: "
        "atdm fit --probed reads which rows it was"
    )
    return Group(table, end)


def _blocks(probe: Probe) -> list[tuple[pd.Timestamp, pd.Timestamp, float]]:
    columns = (probe.blocks[name] for name in ("time", "until", "setpoint_offset_k"))
    return list(zip(*columns, strict=True))


def _utc(time: pd.Timestamp) -> str:
    return time.tz_convert("UTC").strftime("%Y%m%dT%H%M%SZ")


def _folded(line: str) -> str:
    """Lines longer than LINE octets continue after a space."""
    parts, rest = [], line.encode()
    while len(rest) > LINE:
        parts.append(rest[:LINE].decode())
        rest = b" " + rest[LINE:]
    return "\r\n".join([*parts, rest.decode()])
