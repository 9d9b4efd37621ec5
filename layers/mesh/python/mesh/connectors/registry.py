"""Owns which message surfaces there are: one entry a kind of install.

Refuses to load a surface for a function that does not send: ingress functions know their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mesh.connectors.contract import Outbound
from mesh.connectors.generic.outbound import GenericOutbound

OUTBOUND: Final[Mapping[str, Outbound]] = {"generic": GenericOutbound()}
"""How each kind of install sends."""
