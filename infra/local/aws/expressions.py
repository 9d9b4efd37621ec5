"""Owns the grammar of DynamoDB's expressions: condition, filter, key condition, update, projection.

Refuses what AWS refuses before it looks at an item: reserved words used bare, redundant
parentheses, a clause given twice. Meaning is `evaluate`'s; a text is parsed once and kept.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources
from typing import Final

from infra.local.aws.syntax import (
    Action,
    Arithmetic,
    Between,
    Both,
    Call,
    Compare,
    Condition,
    Either,
    Given,
    IfNotExists,
    In,
    ListAppend,
    Not,
    Operand,
    Parsed,
    Path,
    Size,
    Tree,
)
from infra.local.aws.values import invalid

TEXT_BYTES_MAX: Final = 4096

_TOKEN = re.compile(
    r"\s*(?:(?P<name>#[A-Za-z0-9_]+)|(?P<value>:[A-Za-z0-9_]+)|(?P<word>[A-Za-z][A-Za-z0-9_]*)"
    r"|(?P<digits>[0-9]+)|(?P<sign><>|<=|>=|[=<>(),.\[\]+\-]))"
)
_COMPARATORS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})
_FUNCTIONS: Final = {
    "attribute_exists": 1,
    "attribute_not_exists": 1,
    "attribute_type": 2,
    "begins_with": 2,
    "contains": 2,
}
_CLAUSES: Final = frozenset({"SET", "REMOVE", "ADD", "DELETE"})


@lru_cache(maxsize=2048)
def condition(text: str, kind: str = "ConditionExpression") -> Parsed[Condition]:
    """A condition, filter or key condition; `kind` names it in errors. Raises AwsError."""
    parser = _Parser(text, kind)
    return parser.finish(parser.either())


@lru_cache(maxsize=2048)
def update(text: str) -> Parsed[tuple[Action, ...]]:
    """An update expression. Raises AwsError."""
    parser = _Parser(text, "UpdateExpression")
    return parser.finish(parser.clauses())


@lru_cache(maxsize=256)
def projection(text: str) -> Parsed[tuple[Path, ...]]:
    """A projection expression. Raises AwsError."""
    parser = _Parser(text, "ProjectionExpression")
    paths = [parser.path()]
    while parser.take(","):
        paths.append(parser.path())
    return parser.finish(tuple(paths))


@lru_cache(maxsize=1)
def reserved_words() -> frozenset[str]:
    """AWS's reserved words, upper case: none may stand bare in an expression."""
    text = resources.files("infra.local.aws").joinpath("reserved_words.txt").read_text("ascii")
    return frozenset(text.split())


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str, kind: str) -> None:
        self.kind = kind
        self.names: set[str] = set()
        self.values: set[str] = set()
        if not text.strip():
            raise self.wrong("The expression can not be empty;")
        if len(text.encode()) > TEXT_BYTES_MAX:
            raise self.wrong("Expression size has exceeded the maximum allowed size;")
        self.tokens = self._tokens(text)
        self.at = 0

    def _tokens(self, text: str) -> list[tuple[str, str]]:
        out, position, text = [], 0, text.rstrip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise self.syntax(text[position:].lstrip()[:1])
            out.append((str(found.lastgroup), found[str(found.lastgroup)]))
            position = found.end()
        return out

    def wrong(self, message: str) -> Exception:
        return invalid(f"Invalid {self.kind}: {message}")

    def syntax(self, token: str) -> Exception:
        return self.wrong(f'Syntax error; token: "{token}"')

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else ("end", "<EOF>")

    def keyword(self) -> str:
        kind, text = self.peek()
        return text.upper() if kind == "word" else ""

    def take(self, *texts: str) -> str | None:
        kind, text = self.peek()
        if (kind == "sign" and text in texts) or (kind == "word" and text.upper() in texts):
            self.at += 1
            return text.upper()
        return None

    def need(self, text: str) -> None:
        if self.take(text) is None:
            raise self.syntax(self.peek()[1])

    def finish(self, tree: Tree) -> Parsed[Tree]:
        if self.at != len(self.tokens):
            raise self.syntax(self.peek()[1])
        return Parsed(tree, frozenset(self.names), frozenset(self.values))

    def either(self) -> Condition:
        left = self.both()
        while self.take("OR"):
            left = Either(left, self.both())
        return left

    def both(self) -> Condition:
        left = self.negated()
        while self.take("AND"):
            left = Both(left, self.negated())
        return left

    def negated(self) -> Condition:
        if self.take("NOT"):
            return Not(self.negated())
        if self.peek() == ("sign", "("):
            self.at += 1
            doubled = self.peek() == ("sign", "(")
            start = self.at
            inner = self.either()
            self.need(")")
            if doubled and self._closes_at(start) == self.at - 2:
                raise self.wrong("The expression has redundant parentheses;")
            return inner
        return self.test()

    def _closes_at(self, start: int) -> int:
        """Where the parenthesis that opens at token `start` closes."""
        depth = 0
        for place in range(start, len(self.tokens)):
            depth += {"(": 1, ")": -1}.get(self.tokens[place][1], 0)
            if depth == 0:
                return place
        raise self.syntax("<EOF>")

    def test(self) -> Condition:
        kind, text = self.peek()
        if kind == "word" and self.peek(1) == ("sign", "(") and text != "size":
            return self.call(text)
        operand = self.operand()
        sign = self.take(*_COMPARATORS)
        if sign:
            right = self.operand()
            if operand == right:
                raise self.wrong("The first operand must be distinct from the remaining operands")
            return Compare(sign, operand, right)
        if self.take("BETWEEN"):
            low = self.operand()
            self.need("AND")
            return Between(operand, low, self.operand())
        if self.take("IN"):
            self.need("(")
            choices = [self.operand()]
            while self.take(","):
                choices.append(self.operand())
            self.need(")")
            return In(operand, tuple(choices))
        raise self.syntax(self.peek()[1])

    def call(self, function: str) -> Condition:
        if function not in _FUNCTIONS:
            raise self.wrong(f"Invalid function name; function: {function}")
        self.at += 2
        arguments = [self.operand()]
        while self.take(","):
            arguments.append(self.operand())
        self.need(")")
        if len(arguments) != _FUNCTIONS[function]:
            raise self.wrong(
                f"Incorrect number of operands for operator or function; function: {function}"
            )
        if function.startswith("attribute_") and not isinstance(arguments[0], Path):
            raise self.wrong(f"Operator or function requires a document path; function: {function}")
        return Call(function, tuple(arguments))

    def operand(self) -> Operand:
        kind, text = self.peek()
        if kind == "value":
            self.at += 1
            self.values.add(text)
            return Given(text)
        if kind == "word" and text == "size" and self.peek(1) == ("sign", "("):
            self.at += 2
            path = self.path()
            self.need(")")
            return Size(path)
        return self.path()

    def path(self) -> Path:
        parts: list[str | int] = [self.attribute()]
        while True:
            if self.take("."):
                parts.append(self.attribute())
            elif self.take("["):
                kind, text = self.peek()
                if kind != "digits":
                    raise self.syntax(text)
                self.at += 1
                self.need("]")
                parts.append(int(text))
            else:
                return Path(tuple(parts))

    def attribute(self) -> str:
        kind, text = self.peek()
        if kind == "name":
            self.names.add(text)
        elif kind != "word":
            raise self.syntax(text)
        elif text.upper() in reserved_words():
            raise self.wrong(f"Attribute name is a reserved keyword; reserved keyword: {text}")
        self.at += 1
        return text

    def clauses(self) -> tuple[Action, ...]:
        actions: list[Action] = []
        seen: set[str] = set()
        while self.keyword() in _CLAUSES:
            clause = self.keyword()
            self.at += 1
            if clause in seen:
                raise self.wrong(
                    f'The "{clause}" section can only be used once in an update expression;'
                )
            seen.add(clause)
            actions.append(self.action(clause))
            while self.take(","):
                actions.append(self.action(clause))
        if not actions:
            raise self.syntax(self.peek()[1])
        return tuple(actions)

    def action(self, clause: str) -> Action:
        path = self.path()
        if clause == "REMOVE":
            return Action(clause, path, None)
        if clause == "SET":
            self.need("=")
            return Action(clause, path, self.assigned())
        operand = self.operand()
        if not isinstance(operand, Given):
            raise self.syntax(self.peek(-1)[1])
        return Action(clause, path, operand)

    def assigned(self) -> Operand:
        left = self.term()
        sign = self.take("+", "-")
        return Arithmetic(sign, left, self.term()) if sign else left

    def term(self) -> Operand:
        kind, text = self.peek()
        if kind != "word" or self.peek(1) != ("sign", "("):
            return self.operand()
        self.at += 2
        if text == "if_not_exists":
            path = self.path()
            self.need(",")
            made: Operand = IfNotExists(path, self.term())
        elif text == "list_append":
            left = self.term()
            self.need(",")
            made = ListAppend(left, self.term())
        else:
            raise self.wrong(f"Invalid function name; function: {text}")
        self.need(")")
        return made
