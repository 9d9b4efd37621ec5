"""What a message may cost: calls and capacity units, which are the same on every machine."""

from __future__ import annotations

from tests.benchmarks import costs, history
from tests.benchmarks.costs import SHORT


def test_a_known_message_is_taken_in_by_three_calls_and_fourteen_units() -> None:
    ingress = costs.known().ingress
    assert ingress.calls == 3  # one look-up, one transaction, one ring
    assert ingress.writes <= costs.INGRESS_WRITES_MAX
    assert ingress.reads <= costs.INGRESS_READS_MAX


def test_a_parent_that_decides_costs_one_more_call() -> None:
    assert costs.with_parent().ingress.calls == 4


def test_a_new_conversation_costs_one_further_try_and_one_look_at_the_actor() -> None:
    ingress = costs.new().ingress
    assert ingress.calls == 5
    assert ingress.writes <= costs.NEW_WRITES_MAX + costs.FURTHER_TRY_WRITES_MAX


def test_a_turn_and_its_delivery_stay_within_their_units() -> None:
    spent = costs.known(SHORT)
    assert spent.turn.writes <= costs.TURN_WRITES_MAX
    assert spent.turn.reads <= costs.TURN_READS_MAX
    assert spent.delivery.writes <= costs.DELIVERY_WRITES_MAX
    assert spent.delivery.reads <= costs.DELIVERY_READS_MAX


def test_daily_budgets_cost_what_two_rows_in_two_transactions_do() -> None:
    usual, budgeted = costs.known(SHORT).turn, costs.budgeted().turn
    assert budgeted.writes <= usual.writes + costs.BUDGETS_WRITES_MAX
    assert budgeted.reads <= usual.reads + costs.BUDGETS_READS_MAX


def test_a_short_retry_stays_within_its_units() -> None:
    assert costs.short_retry().writes <= costs.RETRY_WRITES_MAX


def test_a_message_costs_the_same_whatever_history_is_behind_it() -> None:
    (few, _), (some, passed_some), (more, passed_more) = (
        history.after(messages) for messages in (10, 200, 2_000)
    )
    for plane in ("ingress", "turn", "delivery"):
        small, middle, large = (getattr(each, plane) for each in (few, some, more))
        assert (small.calls, small.writes, small.index_writes) == (
            large.calls,
            large.writes,
            large.index_writes,
        )
        assert middle.reads == large.reads  # both windows are full
    assert few.turn.reads <= more.turn.reads <= costs.FULL_WINDOW_TURN_READS_MAX
    assert passed_some == passed_more
