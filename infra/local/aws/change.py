"""Owns what an update expression makes of an item, and what a projection leaves of one.

Refuses overlapping paths, arithmetic on what is no number, and paths that lead nowhere. The
old item is never changed: what is touched is copied, the rest is shared.
"""

from __future__ import annotations

from collections.abc import Iterable

from infra.local.aws.evaluate import Bindings, Steps, found
from infra.local.aws.syntax import (
    Action,
    Arithmetic,
    Given,
    IfNotExists,
    ListAppend,
    Operand,
    Path,
)
from infra.local.aws.values import SET_TYPES, Item, Value, canonical, invalid, minus, plus, type_of

_NO_PATH = "The document path provided in the expression is invalid for update"


def check_paths(actions: Iterable[Action], bound: Bindings, keys: frozenset[str]) -> None:
    """Raises AwsError for an action on the key, and for two actions on overlapping paths."""
    seen: list[Steps] = []
    for action in actions:
        steps = bound.steps(action.path)
        if steps[0] in keys:
            raise invalid(
                "One or more parameter values were invalid: Cannot update attribute "
                f"{steps[0]}. This attribute is part of the key"
            )
        for other in seen:
            shared = min(len(other), len(steps))
            if other[:shared] == steps[:shared]:
                raise invalid(
                    "Invalid UpdateExpression: Two document paths overlap with each other; "
                    "must remove or rewrite one of these paths"
                )
        seen.append(steps)
        if action.clause in {"ADD", "DELETE"} and isinstance(action.operand, Given):
            _check_operand(action.clause, type_of(bound.values[action.operand.name]))


def _check_operand(clause: str, kind: str) -> None:
    if kind not in (SET_TYPES | {"N"} if clause == "ADD" else SET_TYPES):
        raise invalid(
            "Invalid UpdateExpression: Incorrect operand type for operator or function; "
            f"operator: {clause}, operand type: {kind}"
        )


def updated(actions: tuple[Action, ...], item: Item, bound: Bindings) -> Item:
    """The item that the update makes of `item`; every operand reads the old one."""
    made: Value = {"M": item}
    places: list[tuple[Steps, Value | None]] = []
    for action in actions:
        steps = bound.steps(action.path)
        places.append((steps, _outcome(action, steps, item, bound)))
    # Removals go last and from the back, so that indexes mean what they meant in the old item.
    for steps, value in places:
        if value is not None:
            made = _placed(made, steps, value)
    removed = [steps for steps, value in places if value is None]
    for steps in sorted(removed, key=_backwards):
        made = _removed(made, steps)
    result: Item = made["M"]
    return result


def _backwards(steps: Steps) -> tuple[tuple[int, str], ...]:
    return tuple((-step, "") if isinstance(step, int) else (0, step) for step in steps)


def _outcome(action: Action, steps: Steps, item: Item, bound: Bindings) -> Value | None:
    """The value that the action leaves at its path; None removes it."""
    if action.clause == "REMOVE" or action.operand is None:
        return None
    if action.clause == "SET":
        return canonical(_value(action.operand, item, bound))
    old = found(item, steps)
    given = _value(action.operand, item, bound)
    kind, inner = next(iter(given.items()))
    if old is not None and type_of(old) != kind:
        raise invalid("An operand in the update expression has an incorrect data type")
    if kind == "N":
        return given if old is None else {"N": plus(old["N"], inner)}
    if action.clause == "ADD":
        return given if old is None else {kind: sorted({*old[kind], *inner})}
    left = [] if old is None else [member for member in old[kind] if member not in inner]
    return {kind: left} if left else None


def _value(term: Operand, item: Item, bound: Bindings) -> Value:
    match term:
        case Given(name):
            return bound.values[name]
        case Path():
            value = found(item, bound.steps(term))
            if value is None:
                raise invalid(
                    "The provided expression refers to an attribute that does not exist in the item"
                )
            return value
        case IfNotExists(path, otherwise):
            value = found(item, bound.steps(path))
            return _value(otherwise, item, bound) if value is None else value
        case ListAppend(left, right):
            one, other = _value(left, item, bound), _value(right, item, bound)
            if "L" not in one or "L" not in other:
                raise invalid("An operand in the update expression has an incorrect data type")
            return {"L": [*one["L"], *other["L"]]}
        case Arithmetic(sign, left, right):
            one, other = _value(left, item, bound), _value(right, item, bound)
            if "N" not in one or "N" not in other:
                raise invalid("An operand in the update expression has an incorrect data type")
            return {"N": (plus if sign == "+" else minus)(one["N"], other["N"])}
    raise invalid("Invalid UpdateExpression: an operand of another expression")


def _placed(container: Value | None, steps: Steps, value: Value) -> Value:
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, str) and container is not None and "M" in container:
        members = container["M"]
        if rest and step not in members:
            raise invalid(_NO_PATH)
        return {"M": {**members, step: _placed(members.get(step), rest, value)}}
    if isinstance(step, int) and container is not None and "L" in container:
        listed = list(container["L"])
        if step >= len(listed):
            if rest:
                raise invalid(_NO_PATH)
            listed.append(value)
        else:
            listed[step] = _placed(listed[step], rest, value)
        return {"L": listed}
    raise invalid(_NO_PATH)


def _removed(container: Value, steps: Steps) -> Value:
    step, rest = steps[0], steps[1:]
    if isinstance(step, str) and "M" in container:
        members = dict(container["M"])
        if step in members:
            if rest:
                members[step] = _removed(members[step], rest)
            else:
                del members[step]
        elif rest:
            raise invalid(_NO_PATH)
        return {"M": members}
    if isinstance(step, int) and "L" in container:
        listed = list(container["L"])
        if step < len(listed):
            if rest:
                listed[step] = _removed(listed[step], rest)
            else:
                del listed[step]
        return {"L": listed}
    raise invalid(_NO_PATH)


def projected(item: Item, paths: tuple[Path, ...], bound: Bindings) -> Item:
    """What the projection leaves of `item`: top-level attributes and paths through maps."""
    out: Item = {}
    for path in paths:
        steps = bound.steps(path)
        value = found(item, steps)
        if value is None:
            continue
        if any(isinstance(step, int) for step in steps):
            raise invalid("the embedded AWS projects no list members")
        here: dict[str, Value] = out
        for step in steps[:-1]:
            here = here.setdefault(str(step), {"M": {}})["M"]
        here[str(steps[-1])] = value
    return out
