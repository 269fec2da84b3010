"""What `atdm doctor` found, for a bug report."""

from typing import Any


def doctor_text(found: dict[str, Any]) -> str:
    """One line a finding, plain text that survives a copy."""
    clock = found["clock"]
    steady = "monotonic clock steady" if clock["monotonic"] else "monotonic clock can be set"
    lines = [f"{name:<15}{value}" for name, value in found["versions"].items()]
    lines.append(f"{'clock':<15}{clock['utc']}, zone {clock['zone']}, {steady}, {clock['resolution_s']:g} s")
    for extra, packages in found["packages"].items():
        there = ", ".join(f"{name} {version or 'not installed'}" for name, version in packages.items())
        lines.append(f"{extra or 'needed':<15}{there}")
    for what, rows in found["files"].items():
        lines += [f"{what:<15}{_file(row)}" for row in rows]
    lines += [f"{'server ' + str(row['server']):<15}{row['answer']}" for row in found["servers"]]
    lines += [f"{'problem':<15}{problem}" for problem in found["problems"]] or ["no problem found"]
    return "\n".join(lines)


def _file(row: dict[str, Any]) -> str:
    return ", ".join(str(row[key]) for key in ("name", "mode", "owner", "size") if key in row)
