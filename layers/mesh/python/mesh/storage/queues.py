"""Owns the doorbells: a message that says "this conversation has work", never what the work is.

Refuses to matter: a ring that fails, comes twice, late or out of order costs latency alone, because
workers read rows. So `ring` reports failure instead of raising it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from botocore.client import BaseClient
from botocore.exceptions import BotoCoreError, ClientError

from mesh.kernel.clock import Deadline
from mesh.kernel.ids import Ids, hashed
from mesh.kernel.limits import AWS_ATTEMPTS

DOORBELL_VERSION = 1


class Doorbell(msgspec.Struct, frozen=True):
    """What a ring says. `replay` names the story of an entry that goes out beside the order;
    `delayed` that it came by the queue of delays, whose few workers send nothing."""

    conversation_id: str
    replay: str | None = None
    delayed: bool = False

    def body(self) -> str:
        """The queue message's body."""
        fields: dict[str, object] = {"v": DOORBELL_VERSION, "conversation": self.conversation_id}
        if self.replay is not None:
            fields["replay"] = self.replay
        if self.delayed:
            fields["delayed"] = True
        return json.dumps(fields, separators=(",", ":"))

    def told(self) -> dict[str, str]:
        """What a log says of it."""
        return {"conversation_id": self.conversation_id}

    @classmethod
    def read(cls, body: str) -> Doorbell:
        """The ring that a queue message carries. ValueError when it is none of ours."""
        fields = json.loads(body)
        if not isinstance(fields, dict) or not isinstance(fields.get("conversation"), str):
            raise ValueError("not a doorbell")
        replay = fields.get("replay")
        return cls(
            fields["conversation"],
            replay if isinstance(replay, str) else None,
            fields.get("delayed") is True,
        )


class ChoreBell(msgspec.Struct, frozen=True):
    """A ring for a chore: the id of a job, of an install that is being enabled, or of a notice."""

    chore_id: str

    def body(self) -> str:
        """The queue message's body."""
        return json.dumps({"v": DOORBELL_VERSION, "chore": self.chore_id}, separators=(",", ":"))

    def told(self) -> dict[str, str]:
        """What a log says of it."""
        return {"chore_id": self.chore_id}

    @classmethod
    def read(cls, body: str) -> ChoreBell:
        """The ring that a queue message carries. ValueError when it is none of ours."""
        fields = json.loads(body)
        if not isinstance(fields, dict) or not isinstance(fields.get("chore"), str):
            raise ValueError("not a chore's bell")
        return cls(fields["chore"])


class Bell:
    """Rings the queues."""

    def __init__(
        self,
        client: BaseClient,
        urls: Mapping[str, str],
        ids: Ids,
        deadline: Deadline | None = None,
    ) -> None:
        """With a `deadline` a ring is tried while it allows, and left to the sweep after that."""
        self._client: Any = client  # botocore makes its methods at run time
        self._urls = urls
        self._ids = ids
        self._deadline = deadline

    def turn(self, conversation_id: str, tenant: str, delay_s: int = 0) -> bool:
        """Rings the turn worker. `tenant` (the agent) is the fair-queue group. False when it
        failed."""
        parameters: dict[str, Any] = {"MessageGroupId": tenant}
        if delay_s:
            parameters["DelaySeconds"] = delay_s
        return self._send("turns", Doorbell(conversation_id), parameters)

    def delivery(
        self, conversation_id: str, *, recovery: int | None = None, replay: str | None = None
    ) -> bool:
        """Rings the outbox worker, in the conversation's own FIFO group.

        `recovery` names the attempt after which a worker may be dead: its group may still be
        blocked by the dead one's message, so the ring goes to a group of its own. A fresh
        deduplication id each time: SQS swallows a used one for five minutes, also after deletion.
        False when it failed.
        """
        group = hashed("delivery", conversation_id)
        if recovery is not None:
            group = f"{group}#r{recovery}"
        if replay is not None:
            group = f"{group}#p{replay}"
        return self._send(
            "deliveries",
            Doorbell(conversation_id, replay),
            {"MessageGroupId": group, "MessageDeduplicationId": self._ids.ulid()},
        )

    def delivery_later(self, conversation_id: str, delay_s: int, replay: str | None = None) -> bool:
        """Rings the outbox worker after `delay_s` (at most 900). False when it failed."""
        return self._send(
            "delays",
            Doorbell(conversation_id, replay, delayed=True),
            {"DelaySeconds": max(0, min(900, delay_s))},
        )

    def chore(self, chore_id: str, delay_s: int = 0) -> bool:
        """Rings the chore worker after `delay_s` (at most 900). False when it failed."""
        parameters = {"DelaySeconds": min(900, delay_s)} if delay_s > 0 else {}
        return self._send("chores", ChoreBell(chore_id), parameters)

    def _send(self, queue: str, doorbell: Doorbell | ChoreBell, parameters: dict[str, Any]) -> bool:
        for _ in range(1 if self._deadline is None else AWS_ATTEMPTS):
            if self._deadline is not None and not self._deadline.allows_a_call():
                return False
            try:
                self._client.send_message(
                    QueueUrl=self._urls[queue], MessageBody=doorbell.body(), **parameters
                )
            except (ClientError, BotoCoreError):
                continue
            return True
        return False
