"""What a person looks at while things run: the live page, the owner's page, and the server behind them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

DEFAULT = "127.0.0.1:8765"  # address of a page unless told otherwise


def owners_page(
    ui: str | None, say: Callable[[str], None]
) -> Callable[[Sequence[Any]], AbstractContextManager[object]]:
    """What `atdm agent --ui` asks for: the page for as long as the agents run. Without it nothing of it is loaded."""
    if ui is None:
        return lambda _: nullcontext()
    from atdm.ui.host import parse_address
    from atdm.ui.owner import serving_owner

    return partial(serving_owner, parse_address(ui), say)
