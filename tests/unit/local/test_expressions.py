"""Expressions mean in the embedded DynamoDB what they mean at AWS; moto is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings, strategies as st

from infra.local.aws import change, evaluate, expressions
from infra.local.aws.evaluate import Bindings
from infra.local.aws.values import order
from infra.local.aws.wire import AwsError

MakeCloud = Callable[..., Any]

NAMES = {"#a": "alpha", "#b": "beta", "#c": "gamma", "#d": "delta"}
NUMBERS = st.integers(-3, 3).map(lambda number: {"N": str(number)})
STRINGS = st.sampled_from(["", "x", "xy", "y"]).map(lambda text: {"S": text})
SETS = st.sets(st.sampled_from(["x", "y", "z"]), min_size=1).map(lambda s: {"SS": sorted(s)})
LISTS = st.lists(STRINGS, max_size=2).map(lambda members: {"L": members})
ITEMS = st.fixed_dictionaries({}, optional={"alpha": NUMBERS, "beta": STRINGS, "gamma": SETS})
"""One type an attribute: moto crashes where AWS calls a comparison of two types false."""


def holds(text: str, item: dict[str, Any], values: dict[str, Any]) -> bool:
    parsed = expressions.condition(text)
    body = {
        "ExpressionAttributeNames": {name: NAMES[name] for name in parsed.names},
        "ExpressionAttributeValues": {name: values[name] for name in parsed.values},
    }
    bound = Bindings.of(body, parsed)
    evaluate.check_types(parsed.tree, bound)
    return evaluate.holds(parsed.tree, item, bound)


def updated(text: str, item: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    parsed = expressions.update(text)
    body = {
        "ExpressionAttributeNames": {name: NAMES[name] for name in parsed.names},
        "ExpressionAttributeValues": {name: values[name] for name in parsed.values},
    }
    bound = Bindings.of(body, parsed)
    change.check_paths(parsed.tree, bound, frozenset({"pk", "sk"}))
    return change.updated(parsed.tree, item, bound)


@st.composite
def atoms(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    path = draw(st.sampled_from(["#a", "#b", "#c"]))
    forms = [f"attribute_exists({path})", f"attribute_not_exists({path})"]
    kinds = {"#a": NUMBERS, "#b": STRINGS, "#c": STRINGS}
    bounds = st.lists(kinds[path], min_size=2, max_size=2)
    low, high = sorted(draw(bounds), key=order)
    if path == "#c":
        forms += [f"contains({path}, :low)"]
    else:
        forms += [f"{path} {sign} :low" for sign in ("=", "<>", "<", "<=", ">", ">=")]
        forms += [f"{path} BETWEEN :low AND :high", f"{path} IN (:low, :high)"]
    if path == "#b":
        forms += [f"begins_with({path}, :low)", f"contains({path}, :low)"]
    return draw(st.sampled_from(forms)), {":low": low, ":high": high}


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    values: dict[str, Any] = {}

    def tree(depth: int) -> str:
        shape = draw(st.sampled_from(["atom", "and", "or", "not"] if depth else ["atom"]))
        if shape == "atom":
            text, given_values = draw(atoms())
            for name, value in given_values.items():
                fresh = f":v{len(values)}"
                if name in text:
                    text = text.replace(name, fresh)
                    values[fresh] = value
            return text
        if shape == "not":
            return f"NOT ({tree(0)})"
        left, right = tree(depth - 1), tree(depth - 1)
        return f"({left}) {shape.upper()} {right}" if depth == 2 else f"{left} {shape} {right}"

    return tree(2), values


def by_moto(text: str, item: dict[str, Any], values: dict[str, Any]) -> bool:
    from moto.dynamodb.comparisons import get_filter_expression
    from moto.dynamodb.models.dynamo_type import DynamoType, Item

    key = DynamoType({"S": "k"})
    return bool(get_filter_expression(text, NAMES, values).expr(Item(key, key, item)))


@settings(max_examples=300, deadline=None)
@given(conditions(), ITEMS)
def test_a_condition_holds_exactly_when_moto_says_so(
    condition: tuple[str, dict[str, Any]], item: dict[str, Any]
) -> None:
    text, values = condition
    assert holds(text, item, values) == by_moto(text, item, values), (text, values, item)


SETTING = (
    "#a = :n",
    "#a = #a + :n",
    "#a = #a - :n",
    "#a = if_not_exists(#a, :n) + :n",
    "#a = if_not_exists(#a, :n)",
)
LISTING = ("#d = :l", "#d = list_append(#d, :l)", "#d = list_append(if_not_exists(#d, :l), :l)")


@st.composite
def updates(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    sets = draw(st.one_of(st.none(), st.sampled_from(SETTING)))
    lists = draw(st.one_of(st.none(), st.sampled_from(LISTING)))
    text = ", ".join(part for part in (sets, lists) if part)
    text = f"SET {text}" if text else ""
    text += draw(st.sampled_from(["", " REMOVE #b"]))
    text += draw(st.sampled_from(["", " ADD #c :s", " DELETE #c :s"]))
    if sets is None:
        text += "" if " ADD" in text else draw(st.sampled_from(["", " ADD #a :n"]))
    values = {":n": draw(NUMBERS), ":s": draw(SETS), ":l": draw(LISTS)}
    return text or "REMOVE #b", values


def updated_by_moto(
    text: str, item: dict[str, Any], values: dict[str, Any]
) -> dict[str, Any] | None:
    """The item that moto makes, or None when it refuses."""
    from moto.dynamodb.exceptions import DynamodbException
    from moto.dynamodb.models.dynamo_type import DynamoType, Item
    from moto.dynamodb.parsing.executors import UpdateExpressionExecutor
    from moto.dynamodb.parsing.expressions import UpdateExpressionParser
    from moto.dynamodb.parsing.validators import UpdateExpressionValidator

    key = DynamoType({"S": "k"})
    made = Item(key, key, item)
    table = SimpleNamespace(table_key_attrs=["pk", "sk"], attr=[], attribute_keys=["pk", "sk"])
    used = {name: value for name, value in values.items() if name in text}
    try:
        tree = UpdateExpressionValidator(
            UpdateExpressionParser.make(text), NAMES, used, made, table
        ).validate()
        tree.normalize()
        UpdateExpressionExecutor(tree, made, NAMES).execute()
    except DynamodbException:
        return None

    def wire(value: Any) -> dict[str, Any]:
        members = [wire(each) for each in value.value] if value.is_list() else value.value
        return {value.type: members}

    return {name: wire(value) for name, value in made.attrs.items()}


def comparable(item: dict[str, Any] | None) -> Any:
    """Sets without order, numbers without spelling."""
    if item is None:
        return None
    out: dict[str, Any] = {}
    for name, value in item.items():
        ((kind, inner),) = value.items()
        out[name] = (
            kind,
            sorted(inner) if kind == "SS" else Decimal(inner) if kind == "N" else inner,
        )
    return out


@settings(max_examples=300, deadline=None)
@given(
    updates(),
    st.fixed_dictionaries(
        {}, optional={"alpha": NUMBERS, "beta": STRINGS, "gamma": SETS, "delta": LISTS}
    ),
)
def test_an_update_makes_what_moto_makes(
    update: tuple[str, dict[str, Any]], item: dict[str, Any]
) -> None:
    text, values = update
    before = repr(item)
    try:
        ours: dict[str, Any] | None = updated(text, item, values)
    except AwsError:
        ours = None
    assert repr(item) == before
    assert comparable(ours) == comparable(updated_by_moto(text, item, values)), (text, values)


def test_the_reserved_words_are_those_that_moto_knows() -> None:
    from moto.dynamodb.parsing.reserved_keywords import ReservedKeywords

    assert expressions.reserved_words() == frozenset(ReservedKeywords.get_reserved_keywords())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("#a <> :n", True),
        ("#a <> #b", True),
        ("#a = :n", False),
        ("#a < :n", False),
        ("NOT #a < :n", True),
        ("attribute_type(#c, :t)", True),
        ("size(#c) = :two", True),
        ("contains(#c, :x)", True),
        ("#d.nest[1].deep = :n", True),
        ("#d.nest[7].deep = :n", False),
        ("#d.nest[0] < :n", False),
    ],
)
def test_a_condition_knows_missing_attributes_other_types_and_nested_paths(
    text: str, wanted: bool
) -> None:
    item = {
        "gamma": {"SS": ["x", "y"]},
        "delta": {"M": {"nest": {"L": [{"S": "x"}, {"M": {"deep": {"N": "1"}}}]}}},
    }
    values = {":n": {"N": "1"}, ":t": {"S": "SS"}, ":two": {"N": "2"}, ":x": {"S": "x"}}
    assert holds(text, item, values) is wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SET #d.nest = :n", {"M": {"nest": {"N": "1"}, "more": {"L": [{"N": "0"}]}}}),
        (
            "SET #d.#a = :n",
            {"M": {"alpha": {"N": "1"}, "nest": {"S": "x"}, "more": {"L": [{"N": "0"}]}}},
        ),
        (
            "SET #d.more[9] = :n",
            {"M": {"nest": {"S": "x"}, "more": {"L": [{"N": "0"}, {"N": "1"}]}}},
        ),
        ("REMOVE #d.more[0], #d.nest", {"M": {"more": {"L": []}}}),
        (
            "ADD #d.#a :n",
            {"M": {"alpha": {"N": "1"}, "nest": {"S": "x"}, "more": {"L": [{"N": "0"}]}}},
        ),
    ],
)
def test_an_update_reaches_into_maps_and_lists(text: str, wanted: dict[str, Any]) -> None:
    item = {"delta": {"M": {"nest": {"S": "x"}, "more": {"L": [{"N": "0"}]}}}}
    before = repr(item)
    assert updated(text, item, {":n": {"N": "1"}})["delta"] == wanted
    assert repr(item) == before


def test_the_operands_of_an_update_are_those_of_the_old_item() -> None:
    item = {"alpha": {"N": "1"}, "beta": {"N": "2"}}
    assert updated("SET #a = #b, #b = #a", item, {}) == {
        "alpha": {"N": "2"},
        "beta": {"N": "1"},
    }


@pytest.mark.parametrize(
    "text",
    [
        "status = :n",
        "_a = :n",
        "((#a = :n))",
        "#a = #a",
        "#a == :n",
        "#a = :n AND",
        "#a = :n #b",
        "exists(#a)",
        "attribute_exists(:n)",
        "attribute_exists(#a, #b)",
        "attribute_type(#a, :n)",
        "begins_with(#a, :n)",
        "#a < :set",
        "#a BETWEEN :n AND :less",
        "",
        "#a = :n" + " OR #a = :n" * 500,
    ],
)
def test_a_condition_that_aws_refuses_is_refused(text: str) -> None:
    values = {":n": {"N": "1"}, ":less": {"N": "0"}, ":set": {"SS": ["x"]}}
    with pytest.raises(AwsError) as caught:
        holds(text, {}, values)
    assert caught.value.code == "ValidationException"


@pytest.mark.parametrize(
    "text",
    [
        "SET pk = :n",
        "SET #a = :n, #a = :n",
        "SET #d = :n, #d.nest = :n",
        "SET #a = :n SET #b = :n",
        "SET status = :n",
        "ADD #a :text",
        "DELETE #a :n",
        "ADD #a #b",
        "SET #a = #b + :n",
        "SET #d.nest = :n",
        "SET #c = #c + :n",
        "REMOVE",
        "UPDATE #a = :n",
        "SET #a = list_append(#c, :n)",
    ],
)
def test_an_update_that_aws_refuses_is_refused(text: str) -> None:
    item = {"gamma": {"S": "x"}}
    with pytest.raises(AwsError) as caught:
        updated(text, item, {":n": {"N": "1"}, ":text": {"S": "x"}})
    assert caught.value.code == "ValidationException"


@pytest.mark.parametrize(
    "more",
    [
        {"ExpressionAttributeValues": {":n": {"N": "1"}, ":spare": {"N": "1"}}},
        {
            "ExpressionAttributeValues": {":n": {"N": "1"}},
            "ExpressionAttributeNames": {"#spare": "x"},
        },
        {},
    ],
)
def test_placeholders_are_all_defined_and_all_used(cloud: MakeCloud, more: dict[str, Any]) -> None:
    with pytest.raises(ClientError) as caught:
        cloud().update("row", "SET n = :n", **more)
    assert caught.value.response["Error"]["Code"] == "ValidationException"


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ("ALL_OLD", {"pk", "sk", "n", "m"}),
        ("UPDATED_OLD", {"n"}),
        ("ALL_NEW", {"pk", "sk", "n", "m", "o"}),
        ("UPDATED_NEW", {"n", "o"}),
        ("NONE", set()),
    ],
)
def test_an_update_returns_what_was_asked_for(
    cloud: MakeCloud, wanted: str, shown: set[str]
) -> None:
    here = cloud()
    here.put("row", n={"N": "1"}, m={"N": "1"})
    answer = here.update(
        "row",
        "SET n = :n, o = :n",
        ExpressionAttributeValues={":n": {"N": "2"}},
        ReturnValues=wanted,
    )
    assert set(answer.get("Attributes", {})) == shown


def test_a_query_filters_counts_and_projects(cloud: MakeCloud) -> None:
    here = cloud()
    for number in range(4):
        here.put("p", str(number), n={"N": str(number)}, m={"N": "9"})
    query = {
        "TableName": "mesh",
        "KeyConditionExpression": "pk = :p",
        "FilterExpression": "n >= :n",
        "ExpressionAttributeValues": {":p": {"S": "p"}, ":n": {"N": "2"}},
    }
    answer = here.ddb.query(**query, ProjectionExpression="n")
    assert answer["Items"] == [{"n": {"N": "2"}}, {"n": {"N": "3"}}]
    assert (answer["Count"], answer["ScannedCount"]) == (2, 4)
    assert "Items" not in here.ddb.query(**query, Select="COUNT")
    with pytest.raises(ClientError):
        here.ddb.query(**{**query, "FilterExpression": "sk >= :n"})


@pytest.mark.parametrize(
    "text", ["sk = :p", "pk > :p", "pk = :p OR sk = :p", "pk = :p AND contains(sk, :p)", "n = :p"]
)
def test_a_key_condition_names_one_partition_and_one_span(cloud: MakeCloud, text: str) -> None:
    with pytest.raises(ClientError) as caught:
        cloud().ddb.query(
            TableName="mesh",
            KeyConditionExpression=text,
            ExpressionAttributeValues={":p": {"S": "p"}},
        )
    assert caught.value.response["Error"]["Code"] == "ValidationException"
