"""Owns how a worker reads a conversation: its order, its outbox's place and its first work, in one
query.

Refuses the index: what a worker goes by is read consistently from the conversation's own partition.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from mesh.records.conversation import Conversation, Outbox, Pending
from mesh.records.outbox import Entry, EntryState
from mesh.storage import keys
from mesh.storage.table import Table

_HEAD_ITEMS = 3
_ENTRIES_A_PAGE = 10
_ENTRY_PAGES_MAX = 20


@dataclass(frozen=True, slots=True)
class Head:
    """Where a conversation stands. `pending` is the run whose turn it is."""

    conversation: Conversation | None
    outbox: Outbox | None
    pending: Pending | None


def read_head(table: Table, conversation_id: str) -> Head:
    """The conversation item, the outbox item and the first waiting run. Raises Failed."""
    page = table.query(
        keys.conversation(conversation_id),
        between=(keys.ORDER, keys.PEND + keys.AFTER_ALL),
        limit=_HEAD_ITEMS,
    )
    conversation: Conversation | None = None
    outbox: Outbox | None = None
    pending: Pending | None = None
    for item in page.items:
        match item["sk"]:
            case keys.ORDER:
                conversation = msgspec.convert(item, Conversation)
            case keys.OUTBOX:
                outbox = msgspec.convert(item, Outbox)
            case _ if pending is None:
                pending = msgspec.convert(item, Pending)
    return Head(conversation, outbox, pending)


def read_behind(table: Table, pending: Pending, conversation_id: str, limit: int) -> list[Pending]:
    """Up to `limit` runs that wait behind `pending`, in their order. Raises Failed."""
    first = keys.pending(conversation_id, pending.order + 1).sk
    page = table.query(
        keys.conversation(conversation_id), between=(first, keys.PEND + keys.AFTER_ALL), limit=limit
    )
    return [msgspec.convert(item, Pending) for item in page.items]


@dataclass(frozen=True, slots=True)
class OutboxHead:
    """What a bounded search for the first entry that is not terminal found."""

    entry: Entry | None
    bound: int
    """No entry below this sequence is pending."""
    whole: bool
    """Whether the search came to the entry, or to the end; if not, it goes on from the bound."""


def read_outbox_head(table: Table, outbox: Outbox) -> Entry | None:
    """The first entry that is not terminal, from the lower bound on; None when there is none, or
    none within reach. Raises Failed."""
    return find_outbox_head(table, outbox).entry


def find_outbox_head(table: Table, outbox: Outbox) -> OutboxHead:
    """Searches for the first entry that is not terminal, from the lower bound on. Raises Failed."""
    bound = outbox.head
    pk = keys.conversation(outbox.conversation_id)
    low, high = keys.entry(outbox.conversation_id, outbox.head).sk, keys.ENTRY + keys.AFTER_ALL
    after = None
    limit = 1  # the lower bound is nearly always the head itself
    for _ in range(_ENTRY_PAGES_MAX):
        page = table.query(pk, between=(low, high), limit=limit, after=after)
        for item in page.items:
            entry = msgspec.convert(item, Entry)
            if entry.state is EntryState.PENDING:
                return OutboxHead(entry, entry.sequence, whole=True)
            bound = entry.sequence + 1
        if page.last is None:
            return OutboxHead(None, bound, whole=True)
        after, limit = page.last, _ENTRIES_A_PAGE
    return OutboxHead(None, bound, whole=False)
