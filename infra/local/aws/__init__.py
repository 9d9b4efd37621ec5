"""Owns the embedded AWS of the local stack and of the tests: DynamoDB, SQS, KMS and
EventBridge in process.

Refuses to be kinder than AWS. moto is too kind and too slow here (it lets races win, forgets
deduplication, never lags, and copies the table a transaction touches), so the services are this
package's own; the tests hold their item semantics against moto's.
"""

from __future__ import annotations

from infra.local.aws.faults import Faults, Kind
from infra.local.aws.local import Broken, Killed, LocalAws
from infra.local.aws.recorder import Call, calling
from infra.local.aws.rows import LAG_MS_MAX, IndexKeys

__all__ = [
    "LAG_MS_MAX",
    "Broken",
    "Call",
    "Faults",
    "IndexKeys",
    "Killed",
    "Kind",
    "LocalAws",
    "calling",
]
