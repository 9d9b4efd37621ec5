"""Owns the AWS clients: made once a process, with time-outs that fit the tightest caller.

Refuses the SDK's defaults: a read waits 60 s there, and DynamoDB is tried ten times, while a third
party has its acknowledgement within 3 s. And its way of reading service models, which are a third
of a cold start.
"""

from __future__ import annotations

import gzip
import threading
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import msgspec
from botocore.client import BaseClient
from botocore.config import Config
from botocore.loaders import JSONFileLoader, Loader
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
    def bedrock(self, read_s: float) -> BaseClient: ...
    @property
    def events(self) -> BaseClient: ...


class _ModelFiles(JSONFileLoader):  # type: ignore[misc]
    """Reads the SDK's models three times as fast: no ordered dictionaries, a parser in C."""

    def load_file(self, file_path: str) -> Any:
        """The model at `file_path`, which has no extension; None where there is none."""
        plain, packed = Path(f"{file_path}.json"), Path(f"{file_path}.json.gz")
        if plain.is_file():
            return msgspec.json.decode(plain.read_bytes())
        if packed.is_file():
            return msgspec.json.decode(gzip.decompress(packed.read_bytes()))
        return None


def new_session() -> Session:
    """A session of the environment's credentials and region, quick to make clients."""
    session = get_session()
    session.register_component("data_loader", Loader(file_loader=_ModelFiles()))
    return session


class SessionClients:
    """Clients of one botocore session; each is made when first asked for, KMS's on cold paths
    only."""

    def __init__(self, session: Session | None = None, *, hurried: bool = False) -> None:
        """`hurried` is ingress's way: short time-outs, and no second attempt of the SDK's own,
        which
        knows no deadline."""
        self._session = session or new_session()
        self._making = threading.Lock()
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

    @cached_property
    def events(self) -> BaseClient:
        return self._session.create_client("events", config=self._config)

    def bedrock(self, read_s: float) -> BaseClient:
        """A client for one call to a model, which is given `read_s` and made once: a second attempt
        would be paid for too."""
        config = Config(
            connect_timeout=AWS_CONNECT_S,
            read_timeout=read_s,
            retries={"mode": "standard", "total_max_attempts": 1},
            max_pool_connections=1,
        )
        with self._making:  # the session is shared by threads, and was not made for it
            return self._session.create_client("bedrock-runtime", config=config)
