"""What commands that have every home, or a fit, read and write."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import atdm
from atdm.cli.printing import dumped, out, show
from atdm.data.format import Format
from atdm.errors import NotConverged, UsageError
from atdm.kernel.descent import Status
from atdm.model.diagnostics import Diagnostics
from atdm.report.evidence import diagnosis
from atdm.report.folder import write_folder
from atdm.report.page import fit_page
from atdm.report.text import summary
from atdm.report.use_text import diagnostics_text
from atdm.report.words import goodness
from atdm.ui.serve import Watch


def read(zones: Path, weather: Path, by: str, declared: Format) -> atdm.Cluster:
    cluster = atdm.read_cluster(zones, weather, **asdict(declared))
    if by not in ("zone", "building"):
        raise UsageError(f"--by {by}: choose zone or building")
    return cluster.by_building() if by == "building" else cluster


def named(zones: Path) -> str:
    """What a cluster is called: its file, or the folder of one that is called zones."""
    return zones.stem if zones.stem != "zones" else zones.resolve().parent.name


def results(fit: atdm.Fit, found: Diagnostics | None, report: str) -> dict[str, str]:
    """The files of a fit; found: its diagnosis."""
    return {
        "model.json": fit.chosen.to_json(),
        "metrics.json": dumped(
            {**fit.metrics, "horizons": fit.horizons_document(), "diagnostics": found and found.as_dict()}
        )
        + "\n",
        "series.csv": fit.series().to_csv(),
        "ledger.json": json.dumps(fit.ledger, indent=2) + "\n",
        "report.html": report,
    }


def finish(
    result: atdm.Fit,
    name: str,
    output: Path | None,
    as_json: bool,
    write_anyway: bool,
    cluster: atdm.Cluster | None = None,  # of a simulation, whose report shows zones; a deployed aggregator has none
    document: dict[str, Any] | None = None,  # for --json, where it is more than the fit's own
    watch: Watch | None = None,  # whoever watched the run is shown its report
) -> None:
    if result.status is Status.NOT_CONVERGED and not write_anyway:
        raise NotConverged("the descent did not converge: raise the tolerance or the ridge, or pass --write-anyway")
    found = diagnosis(result)  # None where there are too few rows for one
    shown = watch is not None and watch.site is not None
    report = fit_page(result, name, cluster=cluster) if output is not None or shown else ""
    if output is not None:
        write_folder(output, results(result, found, report))
    if watch is not None:
        watch.written(report, output and output / "report.html", goodness(result.horizons["chosen"]))
    if as_json:
        show(result.as_dict() if document is None else document)
        return
    out.print(summary(result, name))
    if found:
        out.print(diagnostics_text(found))
    if output is not None:
        out.print(f"wrote {output}/model.json, metrics.json, series.csv, ledger.json and report.html", highlight=False)
