"""Owns the calls to EventBridge: one event to one bus.

Refuses to take an answer for a success: EventBridge answers 200 also when it took nothing, and says
so in a count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botocore.client import BaseClient
from botocore.exceptions import BotoCoreError, ClientError

from mesh.kernel.errors import Failed, Phase


class EventBus:
    """One bus of EventBridge.

    `client` is a callable, so that the client is made when an event is first put.
    """

    def __init__(self, client: Callable[[], BaseClient], name: str) -> None:
        self._client = client
        self._name = name

    def put(self, source: str, detail_type: str, detail: str) -> None:
        """Puts one event; `detail` is the text of a JSON object. Raises Failed.

        A second one of the same is a second event: EventBridge has no deduplication.
        """
        entry = {
            "EventBusName": self._name,
            "Source": source,
            "DetailType": detail_type,
            "Detail": detail,
        }
        client: Any = self._client()  # botocore makes its methods at run time
        try:
            answer = client.put_events(Entries=[entry])
        except (ClientError, BotoCoreError):
            raise Failed(
                "unavailable", "the event bus did not answer", outcome_unknown=True
            ) from None
        if answer["FailedEntryCount"]:
            raise Failed("unavailable", "the event bus did not take the event", Phase.BEFORE)
