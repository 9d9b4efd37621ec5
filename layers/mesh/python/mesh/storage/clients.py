"""Owns the AWS clients: made once a process, with time-outs that fit the tightest caller.

Refuses the SDK's defaults: a read waits 60 s there, and DynamoDB is tried ten times, while a third
party has its acknowledgement within 3 s.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

from botocore.client import BaseClient
from botocore.config import Config
from botocore.session import Session, get_session

from mesh.kernel.limits import (
    AWS_ATTEMPTS,
    AWS_CONNECT_S,
    AWS_READ_S,
    INGRESS_CONNECT_S,
    INGRESS_READ_S,
)


class Clients(Protocol):
    """The clients that storage needs."""

    @property
    def dynamodb(self) -> BaseClient: ...
    @property
    def sqs(self) -> BaseClient: ...
    @property
    def kms(self) -> BaseClient: ...


class SessionClients:
    """Clients of one botocore session; each is made when first asked for, KMS's on cold paths
    only."""

    def __init__(self, session: Session | None = None, *, hurried: bool = False) -> None:
        """`hurried` is ingress's way: short time-outs, and no second attempt of the SDK's own,
        which
        knows no deadline."""
        self._session = session or get_session()
        self._config = Config(
            connect_timeout=INGRESS_CONNECT_S if hurried else AWS_CONNECT_S,
            read_timeout=INGRESS_READ_S if hurried else AWS_READ_S,
            retries={"mode": "standard", "total_max_attempts": 1 if hurried else AWS_ATTEMPTS},
            max_pool_connections=16,
        )

    @cached_property
    def dynamodb(self) -> BaseClient:
        return self._session.create_client("dynamodb", config=self._config)

    @cached_property
    def sqs(self) -> BaseClient:
        return self._session.create_client("sqs", config=self._config)

    @cached_property
    def kms(self) -> BaseClient:
        return self._session.create_client("kms", config=self._config)
