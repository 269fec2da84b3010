"""Threads of the linear algebra beneath numpy."""

from contextlib import AbstractContextManager
from typing import cast

from threadpoolctl import threadpool_limits


def one_blas_thread() -> AbstractContextManager[object]:
    """Hold linear algebra to one thread, from now on or within a `with` block. Matrices here are small: several threads
    would spend up to ten times as long waiting for each other as working."""
    return cast(AbstractContextManager[object], threadpool_limits(limits=1, user_api="blas"))
