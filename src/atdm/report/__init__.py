"""Results as people look at them: tables of text, figures, pages. Public: fit_page, compare_page, summary."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atdm.report.page import compare_page, fit_page
    from atdm.report.text import summary

__all__ = ["compare_page", "fit_page", "summary"]


def __getattr__(name: str) -> Any:  # imported when first used
    if name == "summary":
        from atdm.report.text import summary

        return summary
    if name in __all__:
        from atdm.report import page

        return getattr(page, name)
    raise AttributeError(f"module 'atdm.report' has no attribute {name!r}")
