"""Owns every connection to an address that an operator, a provider or a remote server named.

Refuses to connect anywhere but to addresses that were judged in this very attempt. Contract §2.2.
"""

from mesh.security.egress.contract import (
    Egress,
    EgressFailure,
    EgressFailureKind,
    EgressLimits,
    EgressPolicy,
    Judge,
    Reply,
    StrictJudge,
)
from mesh.security.egress.guard import GuardedEgress, Resolver, strict_tls, system_resolver

__all__ = [
    "Egress",
    "EgressFailure",
    "EgressFailureKind",
    "EgressLimits",
    "EgressPolicy",
    "GuardedEgress",
    "Judge",
    "Reply",
    "Resolver",
    "StrictJudge",
    "strict_tls",
    "system_resolver",
]
