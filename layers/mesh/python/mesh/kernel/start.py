"""Owns how a process starts quickly: no garbage collection among what is loaded and stays.

Refuses to switch collection off for good: outside the block it is as it was.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No collection inside. Modules and clients' large service models are live to the end: walking
    them again and again finds nothing, and takes a tenth of a cold start.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
