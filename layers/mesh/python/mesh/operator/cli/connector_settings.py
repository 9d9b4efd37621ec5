"""Owns the settings of an install on the command line: their options, and the request they make.

Refuses to name what was not given: a setting that is left out keeps its value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import click

from mesh.operator.cli.failure import CommandError
from mesh.operator.client import Json

POLICIES: Final = ("addressed", "always", "never")
BUSY: Final = ("queue", "merge", "reject")
CAPS: Final = (
    ("--max-conversations", "conversations", "Conversations active in 30 days."),
    ("--max-actors", "actors", "Actors active in 30 days."),
    ("--max-messages-per-minute", "messages_per_minute", "Messages accepted a minute."),
    ("--max-waiting", "waiting", "Messages waiting in one conversation."),
)
_SPAN: Final = re.compile(r"([0-9]{1,9})([smhd]?)\Z")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def span(text: str) -> int:
    """Seconds of `24h`, `30m`, `90s`, `2d` or a plain number. CommandError (2)."""
    match = _SPAN.match(text)
    if match is None:
        raise CommandError(f"{text!r} is no span of time; write 24h, 30m, 90s or 0", exit_code=2)
    return int(match[1]) * _SECONDS[match[2]]


def settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that `create` and `update` share."""
    for option, name, text in reversed(CAPS):
        function = click.option(option, name, type=click.IntRange(min=1), metavar="N", help=text)(
            function
        )
    for decorate in (
        click.option(
            "--failure-replies/--no-failure-replies",
            default=None,
            help="Whether a failed run says so to the third party.",
        ),
        click.option("--busy", type=click.Choice(BUSY), help="When it has work already."),
        click.option("--deny-actor", multiple=True, metavar="A", help="An actor never heard."),
        click.option("--allow-actor", multiple=True, metavar="A", help="Only these are heard."),
        click.option("--engage", type=click.Choice(POLICIES), help="Whose messages start a turn."),
        click.option(
            "--allow-host", multiple=True, metavar="H[:PORT]", help="Hosts that replies may go to."
        ),
        click.option("--delivery-url", metavar="URL", help="Where replies are posted."),
        click.option("--name", metavar="LABEL", help="A label for people."),
    ):
        function = decorate(function)
    return function


def changed(given: dict[str, Any], before: Json) -> Json:
    """The settings `before` with what was given put in."""
    body: dict[str, Any] = dict(before)
    for name in ("name", "delivery_url", "failure_replies"):
        if given[name] is not None:
            body[name] = given[name]
    if given["allow_host"]:
        body["allow_hosts"] = list(given["allow_host"])
    engagement: dict[str, Any] = {}
    if given["engage"] is not None:
        engagement["policy"] = given["engage"]
    if given["busy"] is not None:
        engagement["busy"] = given["busy"]
    for option, name in (("allow_actor", "allow_actors"), ("deny_actor", "deny_actors")):
        if given[option]:
            engagement[name] = list(given[option])
    if engagement:
        body["engagement"] = {**body.get("engagement", {}), **engagement}
    caps = {name: given[name] for _, name, _ in CAPS if given[name] is not None}
    if caps:
        body["caps"] = {**body.get("caps", {}), **caps}
    return body
