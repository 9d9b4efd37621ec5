"""Owns every bound of the system, with its unit in its name, and the relations between them.

Refuses a number anywhere else: a limit that is not here is a bug.
"""

from __future__ import annotations

from typing import Final

from mesh.kernel.clock import DAY_MS, MINUTE_MS

# ---- the table

DUE_SHARDS: Final = 64
LIST_SHARDS: Final = 4
AUDIT_SHARDS: Final = 16
SINGLE_WRITE_TRIES: Final = 8
BATCH_KEYS_MAX: Final = 100
"""DynamoDB takes no more in one batch read."""
TRANSACTION_TRIES: Final = 12
CONFLICT_BACKOFF_MS_MIN: Final = 10
CONFLICT_BACKOFF_MS_MAX: Final = 200
AWS_CONNECT_S: Final = 0.5
AWS_READ_S: Final = 1.0
AWS_ATTEMPTS: Final = 2

# ---- ingress

INGRESS_DEADLINE_S: Final = 2.5
"""Every call of one request shares it, so that the acknowledgement comes well inside 3 s."""
INGRESS_CONNECT_S: Final = 0.3
INGRESS_READ_S: Final = 0.6
INGRESS_CALL_S: Final = 0.9
"""The longest that one call of ingress takes; a call begins only where as much time is left."""
INSTANCE_KEY_KEPT_MS: Final = 5 * 60 * 1000
CLAIM_KEPT_MS: Final = 7 * DAY_MS
REPLAY_WINDOW_MS: Final = 2 * 300 * 1000
"""How long one signed request can be sent again: 300 s before and 300 s after its timestamp."""
CAP_CONVERSATIONS: Final = 10_000
CAP_ACTORS: Final = 10_000
CAP_MESSAGES_PER_MINUTE: Final = 600
CAP_WAITING: Final = 100
CAP_MAX: Final = 1_000_000
"""The highest cap on conversations, actors or messages a minute."""
CAP_SHARD_SIZE: Final = 1_250
CAP_SHARDS_MAX: Final = 8
RATE_SHARD_SIZE: Final = 150
RATE_SHARDS_MAX: Final = 64
RATE_ROW_KEPT_MS: Final = 10 * MINUTE_MS
ACTIVE_PERIOD_MS: Final = 10 * DAY_MS
"""Activity is noted once a period, so that a known actor costs no write."""
ACTIVE_KEPT_MS: Final = 30 * DAY_MS
KNOWN_ACTORS_MAX: Final = 64
PREVIOUS_SECRET_NOTED_MS: Final = 10 * MINUTE_MS
"""How often the use of a previous secret is written down."""

# ---- generic connector: inbound

RAW_BODY_BYTES_MAX: Final = 256 * 1024
BODY_BYTES_MAX: Final = 64 * 1024
ID_CODE_POINTS_MAX: Final = 256
DISPLAY_NAME_CODE_POINTS_MAX: Final = 128
SENT_AT_CODE_POINTS_MAX: Final = 64
FIELD_PROBLEMS_MAX: Final = 20
FIELD_PATH_CODE_POINTS_MAX: Final = 64

# ---- the turn

LEASE_MS: Final = 60_000
LEASE_RENEW_MS: Final = 15_000
LEASE_GRACE_MS: Final = 15_000
"""A lease is taken over this long after its end, so that two clocks may differ by as much."""
LEASES_WITHOUT_PROGRESS_MAX: Final = 3
CONTEXT_MESSAGES_MAX: Final = 20
FRAMED_TEXT_BYTES_MAX: Final = 64 * 1024
FRAME_LABEL_CHARACTERS_MAX: Final = 256
CONTEXT_TOKENS_MAX: Final = 16_000
"""What the perspective may have of a model's input, and at most half of what its run may read."""
MODEL_TEXT_BYTES_MAX: Final = 64 * 1024
TURN_STOP_BEFORE_LIMIT_MS: Final = 20_000
TURN_RETRY_S: Final = 5
MODEL_CALL_S_MAX: Final = 60.0
RUNS_PER_INVOCATION_MAX: Final = 1_000
OFFLINE_QUOTE_CHARACTERS: Final = 500

# ---- running slots and daily budgets

RUNNING_SLOTS_MAX: Final = 100
"""The most runs at once that an agent may have: one attribute of one row each."""
SLOT_FRESH_MS: Final = 5_000
"""A slot that is held for longer is renewed before another run begins: a lease ends with its slot,
and a model's call must fit into it."""
SLOT_TAKES_MAX: Final = 8
PARK_LOOKS_MAX: Final = 3
"""How often a worker that parks its work finds a slot free behind it, and loses it again."""
PARKED_NOTED_MS: Final = MINUTE_MS
"""How often the row of an agent's slots says that work waits."""
WAITING_WATCHED_MS: Final = 10 * MINUTE_MS
"""How long it is looked at after that: longer than an index lags and than a worker parks."""
RELEASED_PAGE_ITEMS: Final = 25
RELEASED_PAGES_MAX: Final = 8
BUDGET_PARTS: Final = (50, 80, 100)
"""At which percents of a daily budget the operator is told."""
DAY_ROW_KEPT_DAYS: Final = 40

# ---- a run

MODEL_OUTPUT_TOKENS_MAX: Final = 4_096
"""The most that one model call may write, below the run's own budget: what fits its time-out. An
answer that the clock cuts off is paid for and lost."""
MODEL_RETRY_S: Final = (1.0, 4.0, 10.0)
"""The waits before further tries of a model call that failed in passing, unless it asked for
more."""
MODEL_WAIT_HERE_S_MAX: Final = 15.0
"""A longer wait is another invocation's: nobody pays for a function that sleeps."""
ANSWER_ARGUMENT_BYTES_MAX: Final = 128 * 1024
"""What the arguments of all calls of one answer may have together."""
ANSWER_OPAQUE_BYTES_MAX: Final = 128 * 1024
"""What blocks may have that only their model reads: with words and arguments, a step's row stays
below the 400 KB that an item may have."""
MODEL_CALL_MARGIN_S: Final = 5.0
"""So much longer than its time-out a model call is waited for: a connector keeps its own."""
TOOL_CALL_S_MAX: Final = 60.0
PROBE_S: Final = 22.0
"""So long an operator's probe waits for its call, counted from its request: then time is left to
write down what it came to, before the 29 s are over that the gateway waits for an answer. A page
may take longer to read."""
FINISH_RESERVE_S: Final = 45.0
"""So much of a run's time is kept for its last model call."""
OBSERVATION_BYTES_MAX: Final = 64 * 1024
ADMISSION_TRIES: Final = 30
"""How often a call is brought to its admission while others are counted on the same meters."""
METER_ROW_KEPT_MS: Final = 10 * MINUTE_MS
HANDOVERS_MAX: Final = 200
REPLY_SOURCES_MAX: Final = 40
REPLY_SOURCES_BYTES_MAX: Final = 16 * 1024
"""With how many of the sources that its run was told a reply is kept, the first of them. The steps
of its run name them all."""
MERGED_MAX: Final = 20
"""How many messages that wait behind a run it answers at most beside its own."""

# ---- tools

TOOL_NAME_CHARS_MAX: Final = 64
TOOL_DESCRIPTION_CHARS_MAX: Final = 2_000
SCHEMA_BYTES_MAX: Final = 16 * 1024
SCHEMA_DEPTH_MAX: Final = 12
ARGUMENT_BYTES_MAX: Final = 64 * 1024
ARGUMENT_DEPTH_MAX: Final = 16
ARGUMENT_PROBLEMS_MAX: Final = 5
SEARCH_LIMIT_DEFAULT: Final = 5
SEARCH_CONVERSATIONS_MAX: Final = 25
SEARCH_MESSAGES_PER_CONVERSATION: Final = 100
SEARCH_ACTIVE_MAX: Final = 300
"""Among how many of an install's active conversations the newest are looked for."""
SEARCH_EXCERPT_CHARACTERS: Final = 500
NOTES_PER_INSTALL_MAX: Final = 40
NOTES_SHOWN_MAX: Final = 60
NOTE_ORIGINS_MAX: Final = 50
"""Of so many runs that wrote a note, the newest, it is kept that they did."""

# ---- web access

REQUESTS_MAX: Final = 10_000
"""The highest limit of a connection, a minute or a run."""
REQUESTS_PER_MINUTE_DEFAULT: Final = 60
REQUESTS_PER_RUN_DEFAULT: Final = 20
"""What the command line sets for a connection that had no limits yet."""
PROVIDER_KEY_CHARS_MAX: Final = 4 * 1024
WEB_CONFIG_FIELDS_MAX: Final = 8
PROVIDER_ANSWER_BYTES_MAX: Final = 2 * 1024 * 1024
PROVIDER_ANSWER_NESTING_MAX: Final = 64
PROVIDER_URL_CHARS_MAX: Final = 6 * 1024
"""What a request's own address may have, where the query stands in it: each character of the
longest query that a provider takes has up to twelve there."""
PROVIDER_RETRY_AFTER_S_MAX: Final = 31 * 86_400
"""A longer wait than a month's allowance asks for is told as this."""
PROVIDER_SEARCH_S: Final = 15.0
PROVIDER_READ_S: Final = 45.0
PAGE_LOAD_MS: Final = 30_000
"""How long a provider is given to open a page, within the time that its answer is waited for."""
WEB_QUERY_BYTES_MAX: Final = 2_000
WEB_RESULTS_DEFAULT: Final = 5
WEB_RESULTS_MAX: Final = 10
WEB_TITLE_BYTES_MAX: Final = 600
WEB_EXCERPT_BYTES_MAX: Final = 4 * 1024
WEB_EXCERPT_TOKENS: Final = WEB_EXCERPT_BYTES_MAX // 4
"""What a provider is asked for that counts its excerpts in tokens."""
WEB_MARKUP_CHARS_MAX: Final = 32 * 1024
"""So much of a title or an excerpt that comes as HTML is read."""
WEB_FRONT_MATTER_CHARS_MAX: Final = 16 * 1024
"""Within so much of a page its title is looked for, where it stands before the content."""
SEARCH_OBSERVATION_BYTES_MAX: Final = 32 * 1024
PAGE_BYTES_DEFAULT: Final = 12_000
PAGE_BYTES_MAX: Final = 20_000
PAGE_OBSERVATION_BYTES_MAX: Final = 30 * 1024
FRAME_BYTES_MAX: Final = 512
"""What the frame around an observation may have beside it."""

# ---- language models

MODEL_ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
MODEL_ANSWER_NESTING_MAX: Final = 64
MODEL_CALLS_MAX: Final = 16
"""So many calls of one answer are carried out; the model is told of the others."""
MODEL_ARGUMENT_BYTES_MAX: Final = 64 * 1024
MODEL_ARGUMENT_NESTING_MAX: Final = 32
MODEL_CALL_ID_CHARS_MAX: Final = 64
MODEL_TOOL_NAME_CHARS_MAX: Final = 64
MODEL_TOKENS_TOLD_MAX: Final = 1_000_000_000
"""A count beyond this is none."""
MODEL_TOKEN_BYTES: Final = 4
"""What one token is taken for where an API tells no count."""
MODEL_IMAGE_TOKENS: Final = 1_600
"""The same for a picture: what the largest screenshot costs at the dearest of the APIs."""

# ---- the outbox

REPLY_BODY_BYTES_MAX: Final = 64 * 1024
REPLY_OBJECT_BYTES_MAX: Final = 96 * 1024
RETRY_DELAYS_S: Final = (5, 30, 120, 600, 1800, 3600)
RETRY_JITTER: Final = 0.10
RETRY_AFTER_S_MAX: Final = 3600
SHORT_DELAY_S_MAX: Final = 60
"""Delays up to this ride the delay queue; longer ones are the sweep's."""
RING_AGAIN_WITHIN_MS: Final = 10_000
NO_SLOT_RETRY_S_MIN: Final = 1
NO_SLOT_RETRY_S_MAX: Final = 5
ENTRIES_PER_INVOCATION_MAX: Final = 1_000
ATTEMPTS_CLIENT_ERROR_MAX: Final = 5
ATTEMPTS_HEALTHY_MAX: Final = 10
ATTEMPTS_REFUSED_ADDRESS_MAX: Final = 3
ENTRY_AGE_MS_MAX: Final = 7 * DAY_MS
ATTEMPTS_ON_ENTRY_MAX: Final = 32
DELIVERY_LEASE_MS: Final = 40_000
DELIVERY_SETTINGS_FRESH_MS: Final = 1_000
"""No attempt begins on settings that were read longer ago: what an operator changed holds within 2
s."""
DEGRADED_AFTER_FAILURES: Final = 5
PROBE_EVERY_MS: Final = 60_000
DEGRADED_MS_MAX: Final = DAY_MS
"""An endpoint that fails for so long is paused, until an operator resumes it."""
DEGRADED_NOTICES_PERCENT: Final = (50, 90)
"""At which parts of that time its operator is told."""
TICK_SLACK_MS: Final = 5_000
"""Schedules tick a little early at times, and a pass takes its time: what is due a minute later is
marked by so much less, or it would wait for the tick after the next."""
RECOVERY_SPREAD_MS: Final = 60_000
SLOTS_PER_INSTALL: Final = 8
SLOT_TRIES: Final = 4
REPLAY_TRIES_MAX: Final = 5
HOLDS_KEPT: Final = 20
OUTBOX_STOP_BEFORE_LIMIT_MS: Final = 15_000

# ---- sweeps

DUE_AFTER_MS: Final = 60_000
"""How long after a write its doorbell is given before the sweep looks."""
SWEEP_BACKOFF_MS: Final = (60_000, 120_000, 240_000, 480_000, 960_000, 1_800_000)
SWEEP_RUN_MS_MAX: Final = 45_000
SWEEP_PAGE_ITEMS: Final = 50
SWEEP_PAGES_PER_SHARD: Final = 4
RELEASE_PAGES_MAX: Final = 20

# ---- the control plane

INSTALLS_PER_AGENT_MAX: Final = 90
"""So many rows an agent's pause can change in one transaction."""
OVERLAP_S_DEFAULT: Final = 86_400
OVERLAP_S_MAX: Final = 30 * 86_400
IDEMPOTENCY_KEPT_MS: Final = DAY_MS
DISABLE_WAIT_S: Final = 15
TOKEN_DAYS_DEFAULT: Final = 90

COMMIT_TRIES: Final = 3
"""How often a change whose outcome was lost is tried again; its audit row tells whether it was
done."""
DISABLE_LOOK_EVERY_S: Final = 0.25
ENABLE_WITHIN_S: Final = 20
SLUG_CHARS_MAX: Final = 32
NAME_CHARS_MAX: Final = 128
TURNS_PER_DAY_MAX: Final = 1_000_000_000
TOKENS_PER_DAY_MAX: Final = 1_000_000_000_000
INSTRUCTIONS_CHARS_MAX: Final = 32 * 1024
ALLOW_HOSTS_MAX: Final = 50
ACTOR_LIST_MAX: Final = 200
TOKEN_DAYS_MAX: Final = 3650
AGENTS_PER_TOKEN_MAX: Final = 90
VAULT_NAME_CHARS_MAX: Final = 64
VAULT_NAMES_MAX: Final = 200
"""So many values an agent keeps: its list and its part of a rewrap stay bounded."""
VAULT_VALUE_BYTES_MAX: Final = 16 * 1024
MODEL_KEY_CHARS_MAX: Final = 4 * 1024
REWRAP_ROWS_PER_STEP: Final = 25
"""After so many rows it is written down how far the rotation of the master key is."""
REWRAP_RUN_MS: Final = 15_000
"""How long one request goes on with it."""

# ---- chores: jobs, enablings that stopped short, notices

JOB_STEPS_PER_INVOCATION_MAX: Final = 1_000
JOB_PAGE_ROWS: Final = 25
"""How many rows one step of a job looks at, so that its place is kept often."""
REPLAYS_WAITING_MAX: Final = SLOTS_PER_INSTALL
"""A job orders more replays only when no more than these are still to be tried: what it orders
ahead of delivery would ring for slots that are taken."""
REPLAYS_LOOK_AGAIN_S: Final = 2
DELIVERY_LOOK_AGAIN_S: Final = 60
"""How often a job looks whether a connector's replies go out again."""
DISCARDS_LOOK_AGAIN_S: Final = 5
LISTS_LAG_MS: Final = 30_000
"""How long a job that goes by the lists waits for them to show what came before its order, and for
the requests that were under way."""
CLAIM_LEFT_MS: Final = 8 * DAY_MS
"""How long after its message a claim stays when the message is deleted: a retry gets its first
answer."""
SECRETS_LEFT_MS: Final = 8 * DAY_MS
"""How long a deleted install still tells callers who prove themselves that it is closed."""
WORKER_LIFE_MS_MAX: Final = 10 * MINUTE_MS
"""Longer than any worker lives: a run that ended so long ago is written to by nobody."""
STEP_BARRIER_KEPT_MS: Final = DAY_MS
SLUG_KEPT_MS: Final = 90 * DAY_MS
"""How long the slug of a deleted agent is given to no other."""
ENABLING_GIVEN_MS: Final = MINUTE_MS
"""How long an enabling may stand before the sweep has it gone on with."""
CHORES_STOP_BEFORE_LIMIT_MS: Final = 25_000
NOTICE_TRIED_MS: Final = DAY_MS
"""How long a notice is tried that somebody does not take."""
WEBHOOK_FAILURES_COUNTED: Final = 4
"""So far does the distance grow at which a failing operator webhook is tried: to ten minutes."""

# ---- the operator API

API_BODY_BYTES_MAX: Final = 256 * 1024
LIST_LIMIT_DEFAULT: Final = 50
LIST_LIMIT_MAX: Final = 200
IDEMPOTENCY_KEY_CHARS_MAX: Final = 128
AUDIT_DAYS_PER_REQUEST: Final = 8
AUDIT_ROWS_PER_REQUEST: Final = 1_000
AUDIT_SHARD_ROWS_FIRST: Final = 8
"""How many rows are first read of each shard: a usual page is within them. Then twice as many."""
LIST_DAYS_PER_REQUEST: Final = 32
LIST_ROWS_PER_REQUEST: Final = 1_000
WAKE_AT_ONCE_MAX: Final = 25
DELIVERY_COUNT_DAYS: Final = 8
DELIVERY_COUNT_ENTRIES: Final = 200
"""How far back the counts of waiting and dead entries look: the newest so many entries of an agent.
"""

# ---- the doctor

DOCTOR_AGENTS_PER_REQUEST: Final = 10
DOCTOR_CONNECTORS_PER_REQUEST: Final = 10
DOCTOR_SHARDS_PER_REQUEST: Final = 16
DOCTOR_DUE_PER_SHARD: Final = 20
DOCTOR_OPERATORS_MAX: Final = 200
DOCTOR_REFUSALS_PER_DAY: Final = 20
DOCTOR_SWEEP_LATE_MS: Final = 3 * MINUTE_MS
DOCTOR_LATE_MS: Final = 45 * MINUTE_MS
"""Longer than the sweep waits before it rings again for what its last rings did not help."""
DOCTOR_STUCK_MS: Final = 5 * MINUTE_MS
DOCTOR_TOKEN_ENDS_MS: Final = 14 * DAY_MS
DOCTOR_SECRET_OLD_MS: Final = 365 * DAY_MS
DOCTOR_SKEW_S: Final = 60
DOCTOR_CAP_SHARE: Final = 0.9
DOCTOR_BUDGET_SHARE: Final = 0.8

# ---- how long things are kept

MESSAGES_KEPT_DAYS: Final = 90
RETENTION_DAYS_MAX: Final = 3650
ENTRY_KEPT_DAYS_MIN: Final = 8
"""What became of a reply is known for so long after its end, however short words are kept. Before
it has ended an entry never goes: so a reply whose text is gone before it was delivered ends as
dead, and is told of, and the one behind it never passes it by."""
ATTEMPTS_KEPT_DAYS: Final = 30
AUDIT_KEPT_DAYS: Final = 400
JOBS_KEPT_DAYS: Final = 90
"""Counted from its end: a job that goes on, or waits, never goes of itself."""
NOTICES_KEPT_DAYS: Final = 30

# ---- security

TIMESTAMP_SKEW_S_MAX: Final = 300
SIGNATURE_PARTS_MAX: Final = 5
SECRET_KEY_BYTES: Final = 32
URL_CHARS_MAX: Final = 2048
EGRESS_DNS_S: Final = 2.0
EGRESS_CONNECT_S: Final = 5.0
"""For all addresses that are tried, TLS included."""
EGRESS_TOTAL_S: Final = 10.0
EGRESS_DRAIN_S: Final = 1.0
"""How long a body is still read once the head of an answer has come."""
EGRESS_DRAIN_BYTES: Final = 4 * 1024
EGRESS_HEAD_BYTES_MAX: Final = 16 * 1024
EGRESS_HEADERS_MAX: Final = 50
EGRESS_INFORMATIONAL_MAX: Final = 5
EGRESS_ADDRESSES_MAX: Final = 3

# ---- relations that must hold, whoever changes a number

assert SWEEP_BACKOFF_MS[-1] < DOCTOR_LATE_MS, "what is rung for is no finding"
assert CLAIM_KEPT_MS > REPLAY_WINDOW_MS, "a claim outlives every replay of a signed request"
assert CLAIM_KEPT_MS >= 7 * DAY_MS, "callers are promised seven days, however short words are kept"
assert ENTRY_KEPT_DAYS_MIN * DAY_MS > ENTRY_AGE_MS_MAX, "an entry is kept until its end"
assert NOTICES_KEPT_DAYS * DAY_MS > NOTICE_TRIED_MS, "a notice is kept while it is tried"
assert CLAIM_LEFT_MS > CLAIM_KEPT_MS, "a claim whose message is deleted still judges its retries"
assert LEASE_RENEW_MS * 3 < LEASE_MS, "a lease survives two renewals that fail"
assert MODEL_CALL_S_MAX * 1000 + SLOT_FRESH_MS < LEASE_MS + LEASE_GRACE_MS, "a model's call fits"
assert PARKED_NOTED_MS + 300_000 < WAITING_WATCHED_MS, "who parks is seen, however slow it is"
assert max(PROVIDER_SEARCH_S, PROVIDER_READ_S) < TOOL_CALL_S_MAX, "a provider answers in time"
assert PAGE_LOAD_MS / 1000 < PROVIDER_READ_S, "a page's time-out is told by its provider"
assert SEARCH_OBSERVATION_BYTES_MAX < OBSERVATION_BYTES_MAX, "what is bounded is not cut again"
assert BODY_BYTES_MAX < RAW_BODY_BYTES_MAX, "the longest message must fit into a request"
assert REPLAY_WINDOW_MS == 2 * TIMESTAMP_SKEW_S_MAX * 1000, "the window looks both ways"
assert EGRESS_DNS_S + EGRESS_CONNECT_S < EGRESS_TOTAL_S, "time is left for the request itself"
assert INGRESS_CONNECT_S + INGRESS_READ_S <= INGRESS_CALL_S, "a call ends within its share"
assert 2 * INGRESS_CALL_S < INGRESS_DEADLINE_S, "one call may be lost, and another learn of it"
assert EGRESS_TOTAL_S * 1000 < DELIVERY_LEASE_MS, "a delivery ends before its lease"
