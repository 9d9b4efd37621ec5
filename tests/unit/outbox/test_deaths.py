"""An entry's death is told of in its own transaction, unless an operator has ordered it."""

from __future__ import annotations

import msgspec
import pytest

from mesh.outbox.entries import DEATHS_BY_ORDER, Entries, LostEntry
from mesh.records.notice import NoticeKind
from mesh.records.outbox import Entry, EntryState
from mesh.storage import keys
from tests.fakes.system import System, answer


class Waiting:
    """A conversation whose one reply is still pending."""

    def __init__(self) -> None:
        self.system = System(lag=False)
        made = self.system.make_install()
        self.system.receiver(answer(503))
        self.system.say(made, "Hello")
        self.system.settle()
        self.conversation_id = keys.conversation_id(made.install_id, "room-9")
        self.entries = Entries(self.system.table, self.system.clock, self.system.ids)

    def entry(self) -> Entry:
        (row,) = self.system.rows(keys.ENTRY)
        return msgspec.convert(row, Entry)

    def end(self, entry: Entry, state: EntryState, reason: str) -> Entry:
        return self.entries.end(self.conversation_id, entry, state, reason)


def test_a_death_and_its_notice_name_each_other() -> None:
    waiting = Waiting()
    ended = waiting.end(waiting.entry(), EntryState.DEAD, "too_old")
    (notice,) = waiting.system.rows(keys.NOTICE)
    assert ended == waiting.entry()
    assert (notice["kind"], notice["reason"]) == (NoticeKind.ENTRY_DEAD, "too_old")
    assert (notice["notice_id"], notice["subject"]) == (ended.notice_id, ended.outbound_id)
    assert notice["due_at"] == waiting.system.clock.now_ms()


@pytest.mark.parametrize(
    ("state", "reason"),
    [(EntryState.DEAD, reason) for reason in sorted(DEATHS_BY_ORDER)]
    + [(EntryState.UNDELIVERABLE, "no_delivery_url"), (EntryState.DISCARDED, "operator")],
)
def test_what_an_operator_has_ordered_is_no_news(state: EntryState, reason: str) -> None:
    waiting = Waiting()
    ended = waiting.end(waiting.entry(), state, reason)
    assert (ended.state, ended.notice_id) == (state, None)
    assert waiting.system.rows(keys.NOTICE) == []


def test_an_entry_that_another_ended_is_told_of_once() -> None:
    waiting = Waiting()
    seen = waiting.entry()
    waiting.end(seen, EntryState.DEAD, "too_old")
    with pytest.raises(LostEntry):
        waiting.end(seen, EntryState.DEAD, "too_old")
    assert len(waiting.system.rows(keys.NOTICE)) == 1
