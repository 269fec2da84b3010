"""A first report page: the numbers of a fit as one HTML file."""

from html import escape

from atdm.run import Fit


def fit_page(fit: Fit, title: str) -> str:
    metrics = fit.metrics["test"]["free_run"]
    learned = "".join(
        f"<tr><td>{escape(r['party'])}</td><td>{escape(r['what'])}</td><td>{r['shape']}</td><td>{r['times']}</td></tr>"
        for r in fit.ledger
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><h1>{escape(title)}</h1>"
        f"<p>protocol {fit.protocol}, {fit.agents} agents, R² {metrics['r2']:.4f}</p>"
        f"<table><tr><th>party</th><th>what</th><th>shape</th><th>times</th></tr>{learned}</table></html>\n"
    )
