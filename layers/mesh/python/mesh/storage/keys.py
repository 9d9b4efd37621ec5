"""Owns every key of the one table, and of its two indexes.

Refuses a caller's own value: what callers name enters a key only as a hash (`kernel.ids.hashed`),
because a key holds 2,048 and 1,024 bytes, and because joined raw values collide. What operators
name is of a few short ASCII characters, and comes last.

    INS#<install>            SETTINGS, SECRET#<version>  read together by ingress (prefix `SE`)
                             DELIVERY                    the endpoint's health and its eight slots
    CLAIM#<hash>             CLAIM                       a caller's message id, seen; then an alias
    CONV#<conversation>      MSG#<order>                 the perspective: utterances and replies
                             ENTRY#<sequence>            the outbox, one row a reply
                             ORDER                       last order key, known actors, waiting count
                             OUTBOX                      last sequence, head, due mark
                             PEND#<order>                a run that waits or runs; carries the lease
    STORY#<ulid>             STORY, STEP#<n>, ATTEMPTS#<n>, REPLAY   one message's whole story
                             METER#<capability>          calls that its run had admitted
                             REFUSED                     or where its refusal is counted
    RATE#<install>#<minute>  <shard>
    CAPS#<install>           ACTOR#…, CONVERSATION#…     who was active; COUNT#<kind>#<shard>
    REFUSED#<install>#<day>  <minute>#<reason>
    AGENT#<agent>            SETTINGS, INS#<install>, VAULT#<name>, MODEL_KEY, TOOL#<name>
                             RUNNING                     its running slots, and whether work waits
    NOTES#<agent>#<install>  NOTE#<name>, COUNT          what the agent keeps in mind there
    DAY#<agent>#<day>        DAY                         what it used of its daily budgets
    WEB#<agent or instance>  CONNECTION#<capability>, KEY#<provider>
    METER#<owner>#<capability>#<minute>  METER           calls admitted in that minute
    ACCOUNT#<hash>           ACCOUNT                     whose acting account this is
    AGENTS                   <slug>
    OPERATORS                <operator>
    TOKEN#<look-up prefix>   TOKEN
    MINTED#<hash>            MINTED                      what an Idempotency-Key already made
    AUDIT#<day>#<shard>      <ulid>
    JOB#<ulid>               JOB                         a long change, and how far it is
    NOTICE#<ulid>            NOTICE                      what the operator should be told
    NOTICES                  WEBHOOK#<hash>              a webhook of operators that fails
    INSTANCE                 KEY, REWRAP, SETTINGS, EPOCH, SWEEP#<shard>
    INSTANCE#MODEL_KEYS      <kind>

Sort keys are chosen so that `ORDER`, `OUTBOX` and the first `PEND#…` are neighbours: one query with
a limit of three answers everything that a worker asks of a conversation.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final, NamedTuple

from mesh.kernel.clock import MINUTE_MS, day_of
from mesh.kernel.ids import hashed
from mesh.kernel.limits import AUDIT_SHARDS, DUE_SHARDS, LIST_SHARDS

ITEM_VERSION: Final = 1
"""The schema version `v` of every item that this release writes; readers take it and the one
before."""

SE: Final = "SE"
"""The prefix that `SETTINGS` and `SECRET#…` share, and nothing else in an install's partition."""

ORDER: Final = "ORDER"
OUTBOX: Final = "OUTBOX"
PEND: Final = "PEND#"
ENTRY: Final = "ENTRY#"
MSG: Final = "MSG#"
STEP: Final = "STEP#"
DELIVERY: Final = "DELIVERY"
REPLAY: Final = "REPLAY"
STORY: Final = "STORY"
METER: Final = "METER"
CONNECTION: Final = "CONNECTION#"
PROVIDER_KEY: Final = "KEY#"
SETTINGS: Final = "SETTINGS"
SECRET: Final = "SECRET"  # noqa: S105 - a row's name
KEY: Final = "KEY"
"""Of the instance. What ingress must know of it lies between this row and `SETTINGS`: one read."""

JOB: Final = "JOB"
NOTICE: Final = "NOTICE"
MODEL_KEY: Final = "MODEL_KEY"
RUNNING: Final = "RUNNING"
VAULT: Final = "VAULT#"
TOOL: Final = "TOOL#"
NOTE: Final = "NOTE#"
CONVERSATION: Final = "CONVERSATION#"
EVERYWHERE: Final = "*"
"""In the place of an install's id: the notes that the runs of every install see."""
INSTANCE: Final = "INSTANCE"
INSTANCE_MODEL_KEYS: Final = "INSTANCE#MODEL_KEYS"
AFTER_ALL: Final = "~"


class Key(NamedTuple):
    """A primary key of the table."""

    pk: str
    sk: str


@lru_cache(maxsize=256)  # one message asks for it in every row that it writes
def conversation_id(install_id: str, conversation_key: str) -> str:
    """`conv_` and 26 characters that stand for this key within this install."""
    return "conv_" + hashed("conversation", install_id, conversation_key)


def actor_id(install_id: str, actor: str) -> str:
    """`act_` and 26 characters that stand for this actor within this install."""
    return "act_" + hashed("actor", install_id, actor)


def install(install_id: str) -> str:
    return f"INS#{install_id}"


def settings(install_id: str) -> Key:
    return Key(install(install_id), SETTINGS)


def secret(install_id: str, version: int) -> Key:
    return Key(install(install_id), f"{SECRET}#{version:08d}")


def delivery(install_id: str) -> Key:
    return Key(install(install_id), DELIVERY)


def install_of(key: Key) -> str:
    """The id of the install in whose partition `key` lies."""
    return key.pk.removeprefix("INS#")


def claim(install_id: str, conversation_key: str, message_id: str) -> Key:
    return Key("CLAIM#" + hashed("claim", install_id, conversation_key, message_id), "CLAIM")


def conversation(conversation_id: str) -> str:
    return f"CONV#{conversation_id}"


def order(conversation_id: str) -> Key:
    return Key(conversation(conversation_id), ORDER)


def outbox(conversation_id: str) -> Key:
    return Key(conversation(conversation_id), OUTBOX)


def pending(conversation_id: str, order_key: int) -> Key:
    return Key(conversation(conversation_id), f"{PEND}{order_key:017d}")


def message(conversation_id: str, order_key: int) -> Key:
    return Key(conversation(conversation_id), f"{MSG}{order_key:017d}")


def entry(conversation_id: str, sequence: int) -> Key:
    return Key(conversation(conversation_id), f"{ENTRY}{sequence:012d}")


def story_partition(story: str) -> str:
    return f"STORY#{story}"


def story(story: str) -> Key:
    return Key(story_partition(story), STORY)


def step(story: str, number: int) -> Key:
    return Key(story_partition(story), f"{STEP}{number:06d}")


def attempts_page(story: str, number: int) -> Key:
    return Key(story_partition(story), f"ATTEMPTS#{number:06d}")


def replay(story: str) -> Key:
    return Key(story_partition(story), REPLAY)


def rate(install_id: str, now_ms: int, shard: int) -> Key:
    return Key(f"RATE#{install_id}#{now_ms // MINUTE_MS}", f"{shard:02d}")


def caps(install_id: str) -> str:
    return f"CAPS#{install_id}"


def active_actor(install_id: str, actor: str) -> Key:
    return Key(caps(install_id), f"ACTOR#{actor_id(install_id, actor)}")


def active_conversation(install_id: str, conversation_id: str) -> Key:
    return Key(caps(install_id), f"{CONVERSATION}{conversation_id}")


def cap_count(install_id: str, kind: str, shard: int) -> Key:
    return Key(caps(install_id), f"COUNT#{kind}#{shard:02d}")


def refused(install_id: str, at_ms: int, reason: str) -> Key:
    return Key(f"REFUSED#{install_id}#{day_of(at_ms)}", f"{at_ms // MINUTE_MS:012d}#{reason}")


def refusal(story: str) -> Key:
    return Key(story_partition(story), "REFUSED")


def agent(agent_id: str) -> Key:
    return Key(f"AGENT#{agent_id}", SETTINGS)


def agent_install(agent_id: str, install_id: str) -> Key:
    return Key(f"AGENT#{agent_id}", f"INS#{install_id}")


def vault_value(agent_id: str, name: str) -> Key:
    return Key(agent(agent_id).pk, f"{VAULT}{name}")


def tool(agent_id: str, name: str) -> Key:
    return Key(agent(agent_id).pk, f"{TOOL}{name}")


def notes(agent_id: str, install_id: str) -> str:
    """The partition of an install's notes; of `EVERYWHERE`, those that every install's runs see."""
    return f"NOTES#{agent_id}#{install_id}"


def note(agent_id: str, install_id: str, name: str) -> Key:
    return Key(notes(agent_id, install_id), f"{NOTE}{name}")


def note_place(key: Key) -> str:
    """The install whose notes `key` lies among, or `EVERYWHERE`."""
    return key.pk.rpartition("#")[2]


def note_count(agent_id: str, install_id: str) -> Key:
    return Key(notes(agent_id, install_id), "COUNT")


def account(origin: str, name: str) -> Key:
    """The row of an acting account. Names that differ by case alone are one."""
    return Key("ACCOUNT#" + hashed("account", origin, name.casefold()), "ACCOUNT")


def model_key(agent_id: str) -> Key:
    return Key(agent(agent_id).pk, MODEL_KEY)


def running(agent_id: str) -> Key:
    return Key(agent(agent_id).pk, RUNNING)


def day(agent_id: str, at_ms: int) -> Key:
    """The row of what an agent used on the UTC day of `at_ms`."""
    return Key(f"DAY#{agent_id}#{day_of(at_ms)}", "DAY")


def agent_of(key: Key) -> str:
    """The id of the agent in whose partition `key` lies."""
    return key.pk.removeprefix("AGENT#")


def web(owner_id: str) -> str:
    """The partition of an owner's web connections and providers' keys. The instance's owner is
    `instance`."""
    return f"WEB#{owner_id}"


def connection(owner_id: str, capability: str) -> Key:
    return Key(web(owner_id), f"{CONNECTION}{capability}")


def provider_key(owner_id: str, provider: str) -> Key:
    return Key(web(owner_id), f"{PROVIDER_KEY}{provider}")


def web_owner_of(key: Key) -> str:
    """The id of the owner in whose web partition `key` lies."""
    return key.pk.removeprefix("WEB#")


def minute_meter(owner_id: str, capability: str, at_ms: int) -> Key:
    """The row of what an owner's connection was used in the UTC minute of `at_ms`."""
    return Key(f"METER#{owner_id}#{capability}#{at_ms // MINUTE_MS}", METER)


def run_meter(story: str, capability: str) -> Key:
    return Key(story_partition(story), f"{METER}#{capability}")


def conversation_of(key: Key) -> str:
    """The id of the conversation in whose partition `key` lies."""
    return key.pk.removeprefix("CONV#")


def slug(slug: str) -> Key:
    return Key("AGENTS", slug)


def operator(operator_id: str) -> Key:
    return Key("OPERATORS", operator_id)


def token(prefix: str) -> Key:
    return Key(f"TOKEN#{prefix}", "TOKEN")


def minted(token_id: str, method: str, path: str, idempotency_key: str) -> Key:
    return Key("MINTED#" + hashed("minted", token_id, method, path, idempotency_key), "MINTED")


def audit(at_ms: int, ulid: str) -> Key:
    shard = _shard(ulid, AUDIT_SHARDS)
    return Key(f"AUDIT#{day_of(at_ms)}#{shard:02d}", ulid)


def job(ulid: str) -> Key:
    return Key(f"JOB#{ulid}", JOB)


def notice(ulid: str) -> Key:
    return Key(f"NOTICE#{ulid}", NOTICE)


def webhook_health(url: str) -> Key:
    """How an operator webhook does; another URL begins anew."""
    return Key("NOTICES", "WEBHOOK#" + hashed("webhook", url))


def instance_key() -> Key:
    return Key(INSTANCE, KEY)


def instance_settings() -> Key:
    return Key(INSTANCE, SETTINGS)


def rewrap() -> Key:
    return Key(INSTANCE, "REWRAP")


def epoch() -> Key:
    return Key(INSTANCE, "EPOCH")


def sweep_place(name: str) -> Key:
    return Key(INSTANCE, f"SWEEP#{name}")


def instance_model_key(kind: str) -> Key:
    """The instance's key for a kind of model; apart from `INSTANCE`, whose rows ingress reads."""
    return Key(INSTANCE_MODEL_KEYS, kind)


# ---- the index `due`: one item a conversation and plane, so that a sweep finds what is late


def due(owner: str) -> str:
    """The due partition of `owner` (any id): one of 64."""
    return f"DUE#{_shard(owner, DUE_SHARDS):02d}"


def due_shard(shard: int) -> str:
    return f"DUE#{shard:02d}"


def held(owner_id: str) -> str:
    """Where the marks of a paused agent's or a disabled install's work wait, out of the sweep's
    way; and those of replays while their install's endpoint is degraded or paused."""
    return f"HELD#{owner_id}"


def waiting(agent_id: str) -> str:
    """Where the marks of conversations wait for one of their agent's running slots, oldest
    first."""
    return f"WAITING#{agent_id}"


def degraded(install_id: str) -> str:
    """Where the marks of a degraded endpoint's conversations wait for their turn to probe."""
    return f"DEGRADED#{install_id}"


def idle(owner: str) -> str:
    """Where activity rows wait for the day on which their place is given back."""
    return f"IDLE#{_shard(owner, DUE_SHARDS):02d}"


def idle_shard(shard: int) -> str:
    return f"IDLE#{shard:02d}"


# ---- the index `lists`: what happened, by owner, day and shard


def runs_list(agent_id: str, at_ms: int, story: str) -> str:
    return f"RUNS#{agent_id}#{day_of(at_ms)}#{_shard(story, LIST_SHARDS):02d}"


def outbox_list(agent_id: str, at_ms: int, story: str) -> str:
    return f"OUT#{agent_id}#{day_of(at_ms)}#{_shard(story, LIST_SHARDS):02d}"


def conversations_list(agent_id: str, at_ms: int, story: str) -> str:
    return f"CONVS#{agent_id}#{day_of(at_ms)}#{_shard(story, LIST_SHARDS):02d}"


def audit_shards(at_ms: int) -> tuple[str, ...]:
    """Every audit partition of the UTC day of `at_ms`."""
    return tuple(f"AUDIT#{day_of(at_ms)}#{shard:02d}" for shard in range(AUDIT_SHARDS))


def runs_lists(agent_id: str, at_ms: int) -> tuple[str, ...]:
    """Every shard of an agent's runs of the UTC day of `at_ms`."""
    return tuple(f"RUNS#{agent_id}#{day_of(at_ms)}#{shard:02d}" for shard in range(LIST_SHARDS))


def outbox_lists(agent_id: str, at_ms: int) -> tuple[str, ...]:
    """Every shard of an agent's outbox entries of the UTC day of `at_ms`."""
    return tuple(f"OUT#{agent_id}#{day_of(at_ms)}#{shard:02d}" for shard in range(LIST_SHARDS))


def conversations_lists(agent_id: str, at_ms: int) -> tuple[str, ...]:
    """Every shard of an agent's conversations that began on the UTC day of `at_ms`."""
    return tuple(f"CONVS#{agent_id}#{day_of(at_ms)}#{shard:02d}" for shard in range(LIST_SHARDS))


def refused_day(install_id: str, at_ms: int) -> str:
    """The partition of an install's refusals of the UTC day of `at_ms`."""
    return f"REFUSED#{install_id}#{day_of(at_ms)}"


def _shard(text: str, count: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % count


def shard_of(text: str, count: int) -> int:
    """A stable number below `count` for `text`."""
    return _shard(text, count)
