"""Owns how far an enabling got: the attributes of an install's settings row that tell it.

Refuses to carry a step over to other settings than those that it was done on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mesh.kernel.limits import ENABLING_GIVEN_MS
from mesh.storage import keys
from mesh.storage.items import Item


class Enabling(NamedTuple):
    """How far enabling got. `token` tells one enabling from the next.

    `done` are the steps that were done on the settings as they stand: a step that passed on other
    settings proves nothing of these.
    """

    token: str
    since: int
    skip_ping: bool
    done: tuple[str, ...]


def enabling_item(
    install_id: str, enabling: Enabling | None, version: int = 0
) -> dict[str, object]:
    """The attributes of the settings row that tell how far enabling got, on which version of it.

    While it is under way the row has a due mark: the sweep has one that stopped short gone on with.
    """
    if enabling is None:
        return dict.fromkeys(
            (
                "enabling_token",
                "enabling_since",
                "enabling_skip_ping",
                "enabling_done",
                "enabling_version",
                "due_pk",
                "due_at",
                "rings",
                "seen",
            )
        )
    return {
        "enabling_token": enabling.token,
        "enabling_since": enabling.since,
        "enabling_skip_ping": enabling.skip_ping,
        "due_pk": keys.due(install_id),
        "due_at": enabling.since + ENABLING_GIVEN_MS,
        **steps_item(enabling.done, version),
    }


def steps_item(done: Sequence[str], version: int) -> dict[str, object]:
    """The attributes of the settings row that tell which steps were done on which version of it."""
    return {"enabling_done": list(done), "enabling_version": version}


def enabling_of(settings: Item) -> Enabling | None:
    """How far enabling got, by the settings row; None when it is not under way."""
    if "enabling_token" not in settings:
        return None
    stands = settings.get("enabling_version") == settings["version"]
    return Enabling(
        settings["enabling_token"],
        settings["enabling_since"],
        settings["enabling_skip_ping"],
        tuple(settings["enabling_done"]) if stands else (),
    )
