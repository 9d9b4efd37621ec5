"""Owns installs: their settings, and the minting of each with its first secret.

Refuses to show a secret twice, to keep a delivery URL in the clear, and to save one that the egress
guard would refuse. States are `enablement`'s, later secrets `rotation`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mesh.control.agents import INSTALL_PREFIX, joined, not_found, version_conflict
from mesh.control.audit import AuditTrail, Cause, Deed
from mesh.control.enabling import Enabling, enabling_item, enabling_of
from mesh.control.idempotency import Minting
from mesh.control.instance_key import InstanceKeys
from mesh.control.rows import assign, item_of, record_of
from mesh.control.secrets import open_delivery_url, seal_secret, seal_url
from mesh.kernel.clock import Clock
from mesh.kernel.errors import Conflict, Failed, FieldProblem, Invalid, Refused
from mesh.kernel.ids import Ids, Random, is_install_id
from mesh.records.agent import Agent
from mesh.records.install import (
    Caps,
    Endpoint,
    Engagement,
    Install,
    InstallState,
    Secret,
)
from mesh.security.sealing import InstanceKey
from mesh.security.signing import mint_secret
from mesh.security.urls import Refusal, display, parse, target_of
from mesh.storage import keys
from mesh.storage.items import Item
from mesh.storage.table import Cancelled, Table
from mesh.storage.writes import Write, put

UrlJudge = Callable[[str, Sequence[str]], Refusal | None]
"""What the egress guard says of a URL under an install's list of hosts: the same at save and at
send.

Raises Invalid for a malformed list, with each entry's index as the path.
"""


class Keep(Enum):
    """Stands for a value that a caller left out and that therefore stays."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """An install's whole partition as one consistent read found it."""

    install: Install
    secrets: tuple[Secret, ...]
    endpoint: Endpoint
    enabling: Enabling | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an operator sets of an install."""

    name: str
    delivery_url: str | Keep | None
    allow_hosts: tuple[str, ...]
    engagement: Engagement
    caps: Caps
    failure_replies: bool


class Installs:
    """Reads and changes installs."""

    def __init__(
        self,
        table: Table,
        clock: Clock,
        ids: Ids,
        random: Random,
        *,
        audit: AuditTrail,
        instance_keys: InstanceKeys,
        judge: UrlJudge,
    ) -> None:
        self._table = table
        self._clock = clock
        self._ids = ids
        self._random = random
        self._audit = audit
        self._keys = instance_keys
        self._judge = judge

    def by_id(self, install_id: str) -> Install | None:
        """The install, read consistently; None when it was never made.

        A tombstone is one. Raises Failed.
        """
        if not is_install_id(install_id):
            return None
        item = self._table.get(keys.settings(install_id))
        return None if item is None else record_of(item, Install)

    def whole(self, install_id: str) -> Whole:
        """Settings, secrets and health in one consistent read.

        Raises Refused `not_found`, Failed.
        """
        rows = self._table.query(keys.install(install_id)).items
        by_sk: dict[str, Item] = {row["sk"]: row for row in rows}
        settings = by_sk.get("SETTINGS")
        if settings is None or settings["state"] == InstallState.DELETED:
            raise not_found()
        return Whole(
            install=record_of(settings, Install),
            secrets=tuple(
                record_of(row, Secret) for sk, row in by_sk.items() if sk.startswith("SECRET#")
            ),
            endpoint=record_of(by_sk.get(keys.DELIVERY, {}), Endpoint),
            enabling=enabling_of(settings),
        )

    def find_whole(self, install_id: str) -> Whole | None:
        """As `whole`, None for what was never made and for a tombstone. Raises Failed."""
        try:
            return self.whole(install_id)
        except Refused:
            return None

    def of_agent(
        self, agent_id: str, limit: int, after: str | None
    ) -> tuple[list[str], str | None]:
        """Ids of up to `limit` installs of an agent, oldest first, and where to go on."""
        first = f"{INSTALL_PREFIX}{after or ''}"
        page = self._table.query(
            keys.agent(agent_id).pk, between=(first, f"{INSTALL_PREFIX}~"), limit=limit + 2
        )
        found = [item["sk"][len(INSTALL_PREFIX) :] for item in page.items]
        ids = [install_id for install_id in found if install_id != after]
        return ids[:limit], ids[limit - 1] if len(ids) > limit else None

    def create(
        self,
        agent: Agent,
        wanted: Wanted,
        *,
        kind: str,
        enable: bool,
        skip_ping: bool,
        cause: Cause,
        minting: Minting,
        roster: int | None = None,
    ) -> tuple[Install, str]:
        """Makes an install and its first secret, which is answered here and never again.

        With `enable` it is `enabling` from the start, so that a crash leaves nothing but the steps
        to do. `roster` is the agent's, as whoever asks has seen its connectors. Raises Invalid
        (URL, hosts), Conflict (`idempotency_conflict`; `version_conflict` where another connector
        came or went since; `state_conflict` for a full agent), Minted, Failed.
        """
        now = self._clock.now_ms()
        minting.check(self._table, now)
        install_id, secret = self._ids.mint("ins"), mint_secret(self._random)
        key = self._keys.ensure()
        url = None if isinstance(wanted.delivery_url, Keep) else wanted.delivery_url
        host = self._host(url, wanted.allow_hosts)
        install = Install(
            install_id=install_id,
            kind=kind,
            name=wanted.name,
            agent_id=agent.agent_id,
            agent_slug=agent.slug,
            agent_name=agent.name,
            agent_handle=agent.handle,
            agent_status=agent.status,
            state=InstallState.ENABLING if enable else InstallState.DISABLED,
            delivery_url=None if url is None else seal_url(key, install_id, 1, url, self._random),
            delivery_shown=None if url is None else display(url),
            delivery_host=host,
            allow_hosts=wanted.allow_hosts,
            engagement=wanted.engagement,
            caps=wanted.caps,
            failure_replies=wanted.failure_replies,
            retention_days=agent.retention_days,
            secret_version=1,
            version=1,
            created_at=now,
        )
        enabling = Enabling(self._ids.token(), now, skip_ping, ()) if enable else None
        writes = [
            minting.write({"install_id": install_id}, now),
            joined(agent, roster),
            put(
                keys.settings(install_id),
                {**item_of(install), **enabling_item(install_id, enabling, install.version)},
                "attribute_not_exists(#pk)",
            ),
            secret_write(key, install_id, 1, secret, now_ms=now, random=self._random),
            put(keys.delivery(install_id), item_of(Endpoint())),
            put(keys.agent_install(agent.agent_id, install_id), {"install_id": install_id}),
        ]
        deed = Deed(
            action="connector.create",
            target=install_id,
            agent_id=agent.agent_id,
            version_after=1,
        )
        try:
            self._audit.commit(writes, cause, deed)
        except Cancelled as cancelled:
            minting.check(self._table, now)
            agent_row = cancelled.reasons[1].old or {}
            if roster is not None and agent_row.get("roster", 0) != roster:
                raise version_conflict(agent_row.get("roster", 0)) from None
            if agent_row.get("version") == agent.version and (
                agent_row.get("status") == agent.status.value
            ):
                raise Conflict(
                    "state_conflict",
                    "the agent has as many connectors as one can; delete one first",
                ) from None
            raise Failed("unavailable", "the agent is just being changed; try again") from None
        return install, secret

    def check(self, install: Install, wanted: Wanted, *, version: int) -> None:
        """Whether `update` would be refused as things stand; nothing is changed.

        Raises Invalid, Conflict `version_conflict`, Failed.
        """
        url = None if isinstance(wanted.delivery_url, Keep) else wanted.delivery_url
        if self._keeps(install, wanted):
            # A saved URL is judged by a list that changes with it, and else let be: the instance's
            # list may have come between, and must not bar a change that keeps an actor out, say.
            url = None
            if install.delivery_url is not None and wanted.allow_hosts != install.allow_hosts:
                url = open_delivery_url(self._keys.current(), install)
        self._host(url, wanted.allow_hosts)
        if install.version != version:
            raise version_conflict(install.version)

    def update(
        self,
        install: Install,
        wanted: Wanted,
        *,
        version: int,
        cause: Cause,
        discard_before: int | None = None,
        also: Sequence[Write] = (),
    ) -> Install:
        """Replaces the settings.

        With `discard_before` (Unix ms) what waits and was made earlier is sent nowhere any more.
        `also` goes into the same transaction. Raises Invalid, Conflict `version_conflict`, Failed.
        """
        self.check(install, wanted, version=version)
        changes: dict[str, object] = {
            "name": wanted.name,
            "allow_hosts": list(wanted.allow_hosts),
            "engagement": item_of(wanted.engagement),
            "caps": item_of(wanted.caps),
            "failure_replies": wanted.failure_replies,
            "version": version + 1,
        }
        changes |= self._url_changes(install, wanted, version + 1)
        if discard_before is not None:
            changes["discard_before"] = discard_before
        write = assign(
            keys.settings(install.install_id),
            changes,
            "#version = :version AND #state <> :deleted",
            version=version,
            deleted=InstallState.DELETED.value,
        )
        deed = Deed(
            action="connector.update",
            target=install.install_id,
            agent_id=install.agent_id,
            version_before=version,
            version_after=version + 1,
        )
        try:
            self._audit.commit([write, *also], cause, deed)
        except Cancelled:
            stands = self.whole(install.install_id).install
            raise version_conflict(stands.version) from None
        return self.whole(install.install_id).install

    def _url_changes(self, install: Install, wanted: Wanted, version: int) -> dict[str, object]:
        """What of the URL changes; it was judged."""
        url = wanted.delivery_url
        if isinstance(url, Keep) or self._keeps(install, wanted):
            return {}
        if url is None:
            return {"delivery_url": None, "delivery_shown": None, "delivery_host": None}
        sealed = seal_url(self._keys.ensure(), install.install_id, version, url, self._random)
        return {
            "delivery_url": item_of(sealed),
            "delivery_shown": display(url),
            "delivery_host": host_of(url),
        }

    @staticmethod
    def _keeps(install: Install, wanted: Wanted) -> bool:
        """Whether the saved URL stays."""
        url = wanted.delivery_url
        return isinstance(url, Keep) or (url is not None and url == install.delivery_shown)

    def _host(self, url: str | None, allow_hosts: tuple[str, ...]) -> str | None:
        """Host and port that `url` leads to.

        Raises Invalid naming `allow_hosts` or `delivery_url`.
        """
        try:
            # The list is judged also where there is no URL to judge by it.
            refusal = self._judge(url or "https://mesh.invalid/", allow_hosts)
        except Invalid as invalid:
            raise Invalid(
                "invalid_request",
                "the settings are not valid",
                tuple(FieldProblem(f"allow_hosts.{f.path}", f.problem) for f in invalid.fields),
            ) from None
        if url is None:
            return None
        if refusal is not None:
            problem = FieldProblem("delivery_url", f"refused: {refusal.reason}: {refusal.detail}")
            raise Invalid("invalid_request", "the delivery URL is refused", (problem,))
        return host_of(url)


def secret_write(
    key: InstanceKey, install_id: str, version: int, secret: str, *, now_ms: int, random: Random
) -> Write:
    """Keeps a version of a signing secret, sealed; goes into the transaction that mints it."""
    row = Secret(
        version=version,
        blob=seal_secret(key, install_id, version, secret, random),
        created_at=now_ms,
    )
    return put(keys.secret(install_id, version), item_of(row), "attribute_not_exists(#pk)")


def host_of(url: str) -> str | None:
    """Host and port of a URL that was judged; None when it has none."""
    parts = parse(url)
    target = None if isinstance(parts, Refusal) else target_of(parts)
    return None if target is None else target.authority
