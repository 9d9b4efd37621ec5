"""Owns every call to the one table: reads, conditional writes, transactions.

Refuses to guess: a lost race (`ConditionFailed`, `Cancelled`) is told by DynamoDB's code alone, and
a write whose answer was lost is `Failed(outcome_unknown=True)`, never taken for either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec
from botocore.client import BaseClient
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
)

from mesh.kernel.clock import Clock, Deadline
from mesh.kernel.errors import Failed, Phase
from mesh.kernel.ids import Random
from mesh.kernel.limits import (
    AWS_ATTEMPTS,
    BATCH_KEYS_MAX,
    CONFLICT_BACKOFF_MS_MAX,
    CONFLICT_BACKOFF_MS_MIN,
    SINGLE_WRITE_TRIES,
)
from mesh.storage.items import Item, decode_item
from mesh.storage.keys import Key
from mesh.storage.writes import Kind, Write, key_of

_THROTTLED: Final = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "RequestLimitExceeded",
        "ThrottledException",
    }
)
_T = TypeVar("_T")


class ConditionFailed(Exception):
    """A conditional write lost its race. `old` is the item that stood in the way, None when
    absent."""

    def __init__(self, old: Item | None) -> None:
        super().__init__("the condition of a write did not hold")
        self.old = old


class Why(StrEnum):
    """Why one operation of a transaction did not pass."""

    PASSED = "passed"
    CONDITION = "condition"
    CONFLICT = "conflict"
    OTHER = "other"


class Reason(msgspec.Struct, frozen=True):
    """One operation's part in a cancelled transaction; `old` is its item where a condition
    failed."""

    why: Why
    old: Item | None = None

    def __repr__(self) -> str:
        return f"Reason({self.why.value})"  # an item may hold what no log may


class Cancelled(Exception):
    """A transaction was not applied. `reasons` stand in the order of its writes."""

    def __init__(self, reasons: tuple[Reason, ...]) -> None:
        super().__init__("a transaction was cancelled")
        self.reasons = reasons

    @property
    def conflict_only(self) -> bool:
        """Whether nothing but contention stood in the way."""
        return all(reason.why in (Why.PASSED, Why.CONFLICT) for reason in self.reasons)


class Page(msgspec.Struct, frozen=True):
    """Some items of a query, and the key after which the next page begins (None at the end)."""

    items: list[Item]
    last: dict[str, Any] | None


class Table:
    """The one table. Thread-safe, as its client is."""

    def __init__(
        self,
        client: BaseClient,
        name: str,
        clock: Clock,
        random: Random,
        deadline: Deadline | None = None,
    ) -> None:
        """With a `deadline` second attempts are the table's own, not the SDK's, and no call begins
        that the deadline does not allow."""
        self._deadline = deadline
        self._client: Any = client  # botocore makes its methods at run time
        self._name = name
        self._clock = clock
        self._random = random

    def get(self, key: Key) -> Item | None:
        """The item, read consistently; None when absent. Raises Failed."""
        answer = self._call(
            lambda: self._client.get_item(
                TableName=self._name, Key=key_of(key), ConsistentRead=True
            )
        )
        item = answer.get("Item")
        return None if item is None else decode_item(item)

    def query(
        self,
        pk: str,
        *,
        prefix: str | None = None,
        between: tuple[str, str] | None = None,
        limit: int | None = None,
        forward: bool = True,
        after: dict[str, Any] | None = None,
    ) -> Page:
        """One page of a partition, read consistently, in the order of sort keys. Raises Failed."""
        condition, values = "#pk = :pk", {":pk": {"S": pk}}
        names = {"#pk": "pk"}
        if prefix is not None:
            condition += " AND begins_with(#sk, :sk)"
            names["#sk"], values[":sk"] = "sk", {"S": prefix}
        elif between is not None:
            condition += " AND #sk BETWEEN :lo AND :hi"
            names["#sk"] = "sk"
            values[":lo"], values[":hi"] = {"S": between[0]}, {"S": between[1]}
        return self._query(
            {
                "KeyConditionExpression": condition,
                "ExpressionAttributeNames": names,
                "ExpressionAttributeValues": values,
                "ConsistentRead": True,
                "ScanIndexForward": forward,
            },
            limit,
            after,
        )

    def query_due(
        self, due_pk: str, *, until_ms: int | None, limit: int, after: dict[str, Any] | None = None
    ) -> Page:
        """Keys of one due partition, earliest first, no later than `until_ms`. May lag. Raises
        Failed."""
        condition, values = "#due_pk = :pk", {":pk": {"S": due_pk}}
        names = {"#due_pk": "due_pk"}
        if until_ms is not None:
            condition += " AND #due_at <= :until"
            names["#due_at"], values[":until"] = "due_at", {"N": str(until_ms)}
        return self._query(
            {
                "IndexName": "due",
                "KeyConditionExpression": condition,
                "ExpressionAttributeNames": names,
                "ExpressionAttributeValues": values,
            },
            limit,
            after,
        )

    def query_list(self, list_pk: str, *, limit: int, before: str | None = None) -> Page:
        """Keys of one list partition, newest first, strictly before `before`. May lag. Raises
        Failed."""
        condition, values = "#list_pk = :pk", {":pk": {"S": list_pk}}
        names = {"#list_pk": "list_pk"}
        if before is not None:
            condition += " AND #list_sk < :before"
            names["#list_sk"], values[":before"] = "list_sk", {"S": before}
        return self._query(
            {
                "IndexName": "lists",
                "KeyConditionExpression": condition,
                "ExpressionAttributeNames": names,
                "ExpressionAttributeValues": values,
                "ScanIndexForward": False,
            },
            limit,
            None,
        )

    def write(self, write: Write, token: str | None = None) -> Item | None:
        """Applies one write and answers the item as it then is (None after a put or a delete).

        `token` is the mark that this very write leaves in the attribute `token`: a failed condition
        whose old item bears it means that an SDK retry met the first try's success, and the old
        item is answered. Contention with a transaction is tried again here. Raises ConditionFailed,
        Failed.
        """
        parameters = write.parameters(self._name)
        if write.condition:
            parameters["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if write.kind is Kind.UPDATE:
            parameters["ReturnValues"] = "ALL_NEW"
        method = {
            Kind.PUT: self._client.put_item,
            Kind.UPDATE: self._client.update_item,
            Kind.DELETE: self._client.delete_item,
        }[write.kind]
        for attempt in range(SINGLE_WRITE_TRIES):
            if attempt:
                self.back_off()
            try:
                answer = self._call(lambda: method(**parameters))
            except ClientError as error:
                match _code(error):
                    case "ConditionalCheckFailedException":
                        old = _old(error.response.get("Item"))
                        if token is not None and old is not None and old.get("token") == token:
                            return old
                        raise ConditionFailed(old) from None
                    case "TransactionConflictException":
                        continue
                raise _unexpected(error) from None
            attributes = answer.get("Attributes")
            return decode_item(attributes) if attributes else None
        raise Failed("unavailable", "the row is contended; try again", Phase.BEFORE)

    def transact(self, writes: Sequence[Write], request_token: str) -> None:
        """Applies all writes or none. `request_token` makes the SDK's own retries harmless.

        Raises Cancelled with each write's reason, Failed (outcome_unknown when the answer was
        lost).
        """
        operations = []
        for write in writes:
            parameters = write.parameters(self._name)
            if write.condition:
                parameters["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
            operations.append({write.kind.value: parameters})
        try:
            self._call(
                lambda: self._client.transact_write_items(
                    TransactItems=operations, ClientRequestToken=request_token
                )
            )
        except ClientError as error:
            if _code(error) == "TransactionCanceledException":
                raise Cancelled(_reasons(error)) from None
            if _code(error) in (
                "TransactionInProgressException",
                "IdempotentParameterMismatchException",
            ):
                raise Failed(
                    "unavailable", "the outcome of a write is not known", outcome_unknown=True
                ) from None
            raise _unexpected(error) from None

    def transact_settled(self, build: Callable[[], Sequence[Write]], tries: int) -> None:
        """Applies what `build` makes, again while only contention stands in the way. Raises as
        `transact`."""
        for attempt in range(tries):
            if attempt:
                self.back_off()
            try:
                self.transact(build(), self._random.bytes(16).hex())
                return
            except Cancelled as cancelled:
                if not cancelled.conflict_only:
                    raise
        raise Failed("unavailable", "the rows are contended; try again", Phase.BEFORE)

    def back_off(self) -> None:
        """Waits with full jitter before contended work is tried again."""
        self._clock.sleep(
            self._random.uniform(CONFLICT_BACKOFF_MS_MIN, CONFLICT_BACKOFF_MS_MAX) / 1000
        )

    def get_many(self, keys: Iterable[Key]) -> dict[Key, Item]:
        """Items by key, read consistently, a hundred a call; absent ones are left out.

        Raises Failed.
        """
        wanted = [key_of(key) for key in dict.fromkeys(keys)]
        found: dict[Key, Item] = {}
        for first in range(0, len(wanted), BATCH_KEYS_MAX):
            self._get_batch(wanted[first : first + BATCH_KEYS_MAX], found)
        return found

    def _get_batch(self, wanted: list[dict[str, Any]], found: dict[Key, Item]) -> None:
        """Reads one batch into `found`, asking again for what DynamoDB left unprocessed."""
        for attempt in range(SINGLE_WRITE_TRIES):
            if attempt:
                self.back_off()
            request = {self._name: {"Keys": wanted, "ConsistentRead": True}}
            answer = self._call(
                lambda request=request: self._client.batch_get_item(RequestItems=request)  # type: ignore[misc]
            )
            for attributes in answer["Responses"].get(self._name, []):
                item = decode_item(attributes)
                found[Key(item["pk"], item["sk"])] = item
            wanted = answer.get("UnprocessedKeys", {}).get(self._name, {}).get("Keys", [])
            if not wanted:
                return
        raise Failed("unavailable", "the table is busy; try again", Phase.BEFORE)

    def _query(
        self, parameters: dict[str, Any], limit: int | None, after: dict[str, Any] | None
    ) -> Page:
        parameters["TableName"] = self._name
        if limit is not None:
            parameters["Limit"] = limit
        if after is not None:
            parameters["ExclusiveStartKey"] = after
        answer = self._call(lambda: self._client.query(**parameters))
        return Page([decode_item(item) for item in answer["Items"]], answer.get("LastEvaluatedKey"))

    def _call(self, call: Callable[[], _T]) -> _T:
        """Runs one call, a second time where a deadline allows it. Raises as `_attempt`."""
        if self._deadline is None:
            return self._attempt(call)
        failed = Failed("unavailable", "there is no time left; try again", Phase.BEFORE)
        for attempt in range(AWS_ATTEMPTS):
            if attempt:
                self.back_off()
            if not self._deadline.allows_a_call():
                break
            try:
                return self._attempt(call)
            except Failed as again:
                failed = failed if failed.outcome_unknown else again
        raise failed

    def _attempt(self, call: Callable[[], _T]) -> _T:
        """Runs one call once; turns throttling and lost answers into Failed, and lets other
        ClientErrors
        out."""
        try:
            return call()
        except ClientError as error:
            if _code(error) in _THROTTLED:
                raise Failed("unavailable", "the table is busy; try again", Phase.BEFORE) from None
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400) >= 500:
                raise Failed(
                    "unavailable", "the table did not answer; try again", outcome_unknown=True
                ) from None
            raise
        except (ConnectTimeoutError, EndpointConnectionError):
            raise Failed(
                "unavailable", "the table cannot be reached; try again", Phase.BEFORE
            ) from None
        except BotoCoreError:
            raise Failed(
                "unavailable", "the table did not answer; try again", outcome_unknown=True
            ) from None


def _code(error: ClientError) -> str:
    code: str = error.response.get("Error", {}).get("Code", "")
    return code


def _old(attributes: Mapping[str, Any] | None) -> Item | None:
    return decode_item(attributes) if attributes else None


def _reasons(error: ClientError) -> tuple[Reason, ...]:
    """The reasons of a cancelled transaction. The response holds whole old items: it goes no
    further."""
    reasons = []
    for reason in error.response.get("CancellationReasons", []):
        match reason.get("Code", "None"):
            case "None":
                why = Why.PASSED
            case "ConditionalCheckFailed":
                why = Why.CONDITION
            case "TransactionConflict" | "ThrottlingError" | "ProvisionedThroughputExceeded":
                why = Why.CONFLICT
            case _:
                why = Why.OTHER
        reasons.append(Reason(why, _old(reason.get("Item"))))
    return tuple(reasons)


def _unexpected(error: ClientError) -> Exception:
    """An error that Mesh's own code caused. The original may hold items, so only its code goes
    on."""
    return RuntimeError(f"DynamoDB refused a call of Mesh's own making: {_code(error)}")
