"""Whatever is put of the instance's settings and keys: nothing of it can be read back."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings, strategies as st

from tests.fakes.operators import Api, admin
from tests.fakes.system import System

SETTINGS = "/api/instance/settings"
PLAIN = st.text("abcdefghjkmnpqrstvwxyz0123456789", min_size=12, max_size=40)


@st.composite
def puts(draw: st.DrawFn) -> tuple[str, dict[str, Any], str]:
    """A target, a body that is taken or refused, and what must not be seen again."""
    secret = draw(PLAIN)
    odd = draw(st.sampled_from(["", " ", "\u00e9", "\n"]))
    more = draw(st.sampled_from([{}, {"other": 1}, {"version": "x"}]))
    if draw(st.booleans()):
        kind = draw(st.sampled_from(["openai", "anthropic", "bedrock", "other"]))
        return f"/api/instance/model-keys/{kind}", {"value": f"sk-{secret}{odd}"} | more, secret
    scheme = draw(st.sampled_from(["https", "http", "ftp", "htt ps"]))
    host = draw(st.sampled_from(["hooks.example", "127.0.0.1", "user:pw@hooks.example", ""]))
    url = f"{scheme}://{host}/{secret}{odd}"
    return SETTINGS, {"operator_webhook_url": url, "version": 0} | more, secret


def told_by(api: Api) -> str:
    """Everything that an admin can read of it, the log, and the table."""
    shown = (SETTINGS, "/api/agents", "/api/audit", "/api/instance/rewrap", "/api/instance/doctor")
    answers = [api("GET", target).body.decode() for target in shown]
    return "".join(answers) + repr(api.system.log.events) + repr(list(api.system.aws.items()))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(puts(), min_size=1, max_size=4))
def test_nothing_that_was_put_is_seen_again(wanted: list[tuple[str, dict[str, Any], str]]) -> None:
    api = admin(System())
    secrets = []
    for target, body, secret in wanted:
        if target == SETTINGS and body["version"] == 0:
            body["version"] = api.ok("GET", SETTINGS)["version"]
        answer = api("PUT", target, body)
        assert answer.status in (200, 404, 422)
        assert secret not in answer.body.decode()
        if target == SETTINGS and answer.status == 200:
            shown_once = answer.json()["webhook_secret"]
            secrets += [shown_once] if shown_once else []
        secrets.append(secret)
    told = told_by(api)
    assert not [secret for secret in secrets if secret in told]
