"""Owns the doctor's look at a connector: its state, its secrets, its receiver, its callers, its
caps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mesh.control.installs import Whole
from mesh.control.secrets import open_delivery_url, open_secrets, valid_now
from mesh.kernel.clock import DAY_MS
from mesh.kernel.errors import Failed
from mesh.kernel.limits import (
    CAP_MAX,
    CAP_SHARDS_MAX,
    DOCTOR_CAP_SHARE,
    DOCTOR_REFUSALS_PER_DAY,
    DOCTOR_SECRET_OLD_MS,
    DOCTOR_SKEW_S,
    DOCTOR_STUCK_MS,
)
from mesh.operator.checks.finding import error, note, span, warning
from mesh.operator.plane import ControlPlane
from mesh.operator.shapes.doctor import FindingShown
from mesh.records.install import EndpointState, InstallState
from mesh.security.sealing import InstanceKey
from mesh.storage import keys

_CAPS = (("conversation", "conversations"), ("actor", "actors"))
"""How rows and settings name what is capped."""


def check_connector(
    plane: ControlPlane, whole: Whole, key: InstanceKey | None, dead: int
) -> Iterator[FindingShown]:
    """What is wrong with an install; nothing is opened without `key`. Raises Failed."""
    now = plane.deps.clock.now_ms()
    yield from _state(whole, now)
    if key is not None:
        yield from _sealed(plane, whole, key, now)
    yield from _age(whole, now)
    yield from _delivery(whole, dead, now)
    yield from _callers(plane, whole, now)
    yield from _caps(plane, whole)


def _state(whole: Whole, now: int) -> Iterator[FindingShown]:
    install = whole.install
    enable = f"mesh connector enable {install.install_id}"
    match install.state:
        case InstallState.ERROR:
            reason = (install.state_reason or "").removesuffix(f". Then: {enable}")
            text = f"enabling it failed: {reason}"
            yield error("connector_error", install.install_id, text, enable)
        case InstallState.ENABLING:
            since = now - whole.enabling.since if whole.enabling is not None else 0
            if since > DOCTOR_STUCK_MS:
                text = f"it is being enabled for {span(since)}"
                yield error("enabling_stuck", install.install_id, text, enable)
        case InstallState.DISABLED if install.state_reason is not None:
            yield warning(
                "connector_held",
                install.install_id,
                "a restore closed it; look at its secret, URL and lists before you open it",
                enable,
            )
        case InstallState.ENABLED if install.delivery_url is None:
            yield note(
                "no_delivery_url",
                install.install_id,
                "it takes messages in, and has no address for replies",
                f"mesh connector update {install.install_id} --delivery-url URL",
            )
        case _:
            return


def _sealed(
    plane: ControlPlane, whole: Whole, key: InstanceKey, now: int
) -> Iterator[FindingShown]:
    install = whole.install
    try:
        open_secrets(key, install.install_id, whole.secrets, now)
    except Failed:
        yield error(
            "secret_unopenable",
            install.install_id,
            "its signing secret does not open: the row was moved or damaged",
            f"mesh connector rotate {install.install_id} --overlap 0s --force",
        )
    mend = f"mesh connector update {install.install_id} --delivery-url URL"
    try:
        url = open_delivery_url(key, install)
    except Failed:
        yield error(
            "delivery_url_unopenable",
            install.install_id,
            "its delivery URL does not open: the row was moved or damaged",
            mend,
        )
        return
    refusal = None if url is None else plane.judge(url, install.allow_hosts)
    if refusal is not None:
        text = f"its delivery URL is not called: {refusal.detail}; replies die of it"
        yield error("delivery_url_refused", install.install_id, text, mend)


def _age(whole: Whole, now: int) -> Iterator[FindingShown]:
    install_id = whole.install.install_id
    current, *previous = valid_now(whole.secrets, now)
    if previous:
        used = previous[0].last_used_at
        spoken = "nobody used it" if used is None else f"last used {span(now - used)} ago"
        left = span((previous[0].valid_until or now) - now)
        yield note(
            "overlap_open",
            install_id,
            f"its previous secret counts for {left} more; {spoken}",
            f"mesh connector end-overlap {install_id}",
        )
    if now - current.created_at > DOCTOR_SECRET_OLD_MS:
        yield warning(
            "secret_old",
            install_id,
            f"its signing secret is {span(now - current.created_at)} old",
            f"mesh connector rotate {install_id}",
        )


def _delivery(whole: Whole, dead: int, now: int) -> Iterator[FindingShown]:
    install_id, endpoint = whole.install.install_id, whole.endpoint
    resume = f"mesh connector resume-delivery {install_id}"
    failing = (
        "" if endpoint.failing_since is None else f", for {span(now - endpoint.failing_since)}"
    )
    match endpoint.state:
        case EndpointState.PAUSED:
            text = f"delivery is paused ({endpoint.reason}); replies wait until it is resumed"
            yield error("delivery_paused", install_id, text, resume)
        case EndpointState.DEGRADED:
            text = f"its receiver fails{failing}; one probe a minute goes out"
            yield warning("delivery_degraded", install_id, text, resume)
        case EndpointState.OK:
            pass
    if dead:
        yield warning(
            "replies_dead",
            install_id,
            f"{dead} of the newest replies were given up",
            f"mesh outbox replay --connector {install_id} --status dead --yes",
        )


def _callers(plane: ControlPlane, whole: Whole, now: int) -> Iterator[FindingShown]:
    """A caller whose clock is far off is refused, or will be: the window is 300 s."""
    install_id = whole.install.install_id
    for day_ms in (now, now - DAY_MS):
        page = plane.deps.table.query(
            keys.refused_day(install_id, day_ms), forward=False, limit=DOCTOR_REFUSALS_PER_DAY
        )
        for row in page.items:
            skew_s = int(row["last_skew_s"])
            if row["last_at"] > now - DAY_MS and abs(skew_s) >= DOCTOR_SKEW_S:
                side = "ahead" if skew_s > 0 else "behind"
                yield warning(
                    "caller_clock",
                    install_id,
                    f"a caller's clock was {abs(skew_s)} s {side}, {span(now - row['last_at'])}"
                    " ago; over 300 s it is refused",
                    f"mesh connector refusals {install_id}",
                )
                return


def _caps(plane: ControlPlane, whole: Whole) -> Iterator[FindingShown]:
    install = whole.install
    used: Counter[str] = Counter()
    rows = plane.deps.table.query(
        keys.caps(install.install_id), prefix="COUNT#", limit=2 * CAP_SHARDS_MAX
    ).items
    for row in rows:
        used[row["sk"].split("#")[1]] += int(row["n"])
    for kind, setting in _CAPS:
        cap: int = getattr(install.caps, setting)
        if used[kind] >= cap * DOCTOR_CAP_SHARE:
            higher = f"--max-{setting} {min(2 * cap, CAP_MAX)}"
            yield warning(
                "cap_nearly_reached",
                install.install_id,
                f"{used[kind]} of {cap} {setting} are active; new ones will be refused",
                f"mesh connector update {install.install_id} {higher}" if cap < CAP_MAX else None,
            )
