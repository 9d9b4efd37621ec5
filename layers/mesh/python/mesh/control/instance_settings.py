"""Owns the settings of the instance: hosts that may be called, the operators' webhook, retention.

Refuses to keep the webhook's URL or its secret in the clear, to show the secret twice, and to save
an address that the egress guard would refuse to call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mesh.control.agents import version_conflict
from mesh.control.audit import AuditTrail, Cause, Deed
from mesh.control.instance_key import InstanceKeys
from mesh.control.rows import item_of, record_of
from mesh.kernel.clock import Clock
from mesh.kernel.errors import FieldProblem, Invalid
from mesh.kernel.ids import Random
from mesh.kernel.limits import DELIVERY_SETTINGS_FRESH_MS
from mesh.records.install import Sealed
from mesh.records.instance import InstanceSettings, Webhook
from mesh.security.sealing import InstanceKey, SecretContext, open_text, seal
from mesh.security.signing import mint_secret
from mesh.security.urls import Refusal, display
from mesh.storage import keys
from mesh.storage.table import Cancelled, Table
from mesh.storage.writes import put

OWNER_TYPE: Final = "instance"
OWNER_ID: Final = "instance"
_URL: Final = "operator_webhook/url"
_SECRET: Final = "operator_webhook/secret"  # noqa: S105 - the name of one
_ANYWHERE: Final = "https://mesh.invalid/"
"""Judges a list of hosts where there is no URL to judge by it."""

UrlJudge = Callable[[str, Sequence[str]], Refusal | None]
"""What the egress guard says of a URL under a list of hosts. Raises Invalid for a malformed list,
with each entry's index as the path."""


@dataclass(frozen=True, slots=True)
class OperatorWebhook:
    """Where operational notices are posted, and what signs them."""

    url: str = field(repr=False)
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an admin sets. A webhook URL in the form that is shown stands for the saved one."""

    allow_hosts: tuple[str, ...]
    webhook_url: str | None = field(repr=False)
    keep_webhook: bool = False
    """Whether the saved webhook stays, whatever `webhook_url` says."""
    retention_days: int | None


def read_settings(table: Table) -> InstanceSettings:
    """The instance's settings, read consistently. Raises Failed."""
    item = table.get(keys.instance_settings())
    return InstanceSettings() if item is None else record_of(item, InstanceSettings)


def open_webhook(table: Table, instance_keys: InstanceKeys) -> OperatorWebhook | None:
    """The operators' webhook as it is now, in the clear; None where none is set. Raises Failed."""
    webhook = read_settings(table).webhook
    if webhook is None:
        return None
    key = instance_keys.current()
    return OperatorWebhook(
        url=_opened(key, _URL, webhook.url), secret=_opened(key, _SECRET, webhook.secret)
    )


class InstanceHosts:
    """The hosts that the instance lets be called, as they were at most a second ago.

    Whoever sends asks before every request: a warm function reads them once a second at most,
    however many requests it makes.
    """

    def __init__(self, table: Table, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._kept: tuple[int, tuple[str, ...]] | None = None

    def __call__(self) -> tuple[str, ...]:
        """The entries of the list; empty for any public host. Raises Failed."""
        now = self._clock.now_ms()
        kept = self._kept
        if kept is None or not 0 <= now - kept[0] < DELIVERY_SETTINGS_FRESH_MS:
            kept = self._kept = (now, read_settings(self._table).allow_hosts)
        return kept[1]


class InstanceControl:
    """Reads and replaces the settings of the instance."""

    def __init__(
        self,
        table: Table,
        random: Random,
        *,
        audit: AuditTrail,
        instance_keys: InstanceKeys,
        judge: UrlJudge,
    ) -> None:
        self._table = table
        self._random = random
        self._audit = audit
        self._keys = instance_keys
        self._judge = judge

    def read(self) -> InstanceSettings:
        """The settings as they stand. Raises Failed."""
        return read_settings(self._table)

    def update(
        self, wanted: Wanted, *, version: int, cause: Cause
    ) -> tuple[InstanceSettings, str | None]:
        """Replaces the settings; with a fresh signing secret where the webhook's URL is another.

        The secret is answered here and never again. Raises Invalid, Conflict `version_conflict`,
        Failed.
        """
        stands = self.read()
        url, kept = self._webhook(stands, wanted)
        self._check(url, wanted.allow_hosts)
        if stands.version != version:
            raise version_conflict(stands.version)
        webhook, secret = kept, None
        if url is not None and kept is None:
            webhook, secret = self._minted(url, version + 1)
        fresh = InstanceSettings(
            allow_hosts=wanted.allow_hosts,
            webhook=webhook,
            retention_days=wanted.retention_days,
            version=version + 1,
        )
        self._commit(stands, fresh, cause)
        return fresh, secret

    def _commit(self, stands: InstanceSettings, fresh: InstanceSettings, cause: Cause) -> None:
        key, item = keys.instance_settings(), item_of(fresh)
        if stands.version == 0:
            write = put(key, item, "attribute_not_exists(#pk)")
        else:
            write = put(key, item, "#version = :version", version=stands.version)
        deed = Deed(
            action="instance.update",
            target="instance",
            version_before=stands.version or None,
            version_after=fresh.version,
        )
        try:
            self._audit.commit([write], cause, deed)
        except Cancelled:
            raise version_conflict(self.read().version) from None

    def _webhook(
        self, stands: InstanceSettings, wanted: Wanted
    ) -> tuple[str | None, Webhook | None]:
        """The URL that there will be, and the saved webhook where it stays as it is."""
        url, saved = wanted.webhook_url, stands.webhook
        if saved is None:
            return (None if wanted.keep_webhook else url), None
        if url is None and not wanted.keep_webhook:
            return None, None
        opened = _opened(self._keys.current(), _URL, saved.url)
        keeps = wanted.keep_webhook or url in (opened, saved.shown)
        return (opened, saved) if keeps else (url, None)

    def _minted(self, url: str, version: int) -> tuple[Webhook, str]:
        """The webhook to `url`, sealed, and its fresh signing secret. Raises Failed."""
        secret, key = mint_secret(self._random), self._keys.ensure()
        webhook = Webhook(
            url=self._sealed(key, _URL, version, url),
            secret=self._sealed(key, _SECRET, version, secret),
            shown=display(url),
        )
        return webhook, secret

    def _check(self, url: str | None, allow_hosts: Sequence[str]) -> None:
        """Raises Invalid that names `allow_hosts` or `operator_webhook_url`.

        A saved URL is judged again, because the list may have changed.
        """
        try:
            refusal = self._judge(url or _ANYWHERE, allow_hosts)
        except Invalid as invalid:
            problems = tuple(
                FieldProblem(f"allow_hosts.{f.path}", f.problem) for f in invalid.fields
            )
            raise Invalid("invalid_request", "the settings are not valid", problems) from None
        if url is not None and refusal is not None:
            why = f"refused: {refusal.reason}: {refusal.detail}"
            problem = FieldProblem("operator_webhook_url", why)
            raise Invalid("invalid_request", "the webhook's URL is refused", (problem,))

    def _sealed(self, key: InstanceKey, name: str, version: int, value: str) -> Sealed:
        blob = seal(key, context_of(name, version), value.encode(), self._random)
        return Sealed(version=version, blob=blob)


def context_of(name: str, version: int) -> SecretContext:
    """The context of a sealed value of the instance, by the settings version that saved it."""
    return SecretContext(OWNER_TYPE, OWNER_ID, name, version)


def _opened(key: InstanceKey, name: str, sealed: Sealed) -> str:
    return open_text(key, context_of(name, sealed.version), sealed.blob)
