"""Threads of the linear algebra beneath numpy."""

from contextlib import AbstractContextManager
from typing import cast

from threadpoolctl import threadpool_limits


def one_blas_thread() -> AbstractContextManager[object]:
    """From now on, or while the block lasts. Matrices here are small: more threads only wait for each other, up to ten
    times as long."""
    return cast(AbstractContextManager[object], threadpool_limits(limits=1, user_api="blas"))
