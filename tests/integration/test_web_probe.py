"""A probe over real sockets: what it rests on is looked at while its provider says nothing."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.fakes.web_stack import CAPABILITY, WAIT_S, here
from tests.integration.test_web_stack import Held, asks


@pytest.mark.behaviour("offers:poll", "enablement:query-exception")
def test_disabling_returns_before_the_provider_says_a_word_and_cuts_a_probe_off() -> None:
    with here() as mesh:
        mesh.agent("ada")
        mesh.sets("firecrawl")
        held = Held()
        mesh.others.providers["firecrawl"].sends(held)
        probed: list[Any] = []

        def probe() -> None:
            call = asks("firecrawl")
            path = f"/api/agents/ada/tools/{call.name}/probe"
            body = {"arguments": call.arguments}
            probed.append(mesh.client.call("POST", path, body=body))

        asking = threading.Thread(target=probe)
        asking.start()
        assert held.asked.wait(WAIT_S)
        off = mesh.puts(CAPABILITY["firecrawl"], mode="disabled")
        assert not off["available"]
        (gate,) = mesh.rows("CONNECTION#")
        assert gate["mode"] == "disabled", "the gate has changed, whatever the provider does"
        assert held.closed.wait(WAIT_S), "the request goes on"
        asking.join(WAIT_S)
        assert [each["observation_kind"] for each in probed] == ["revoked"]
        assert set(mesh.meters().values()) == {1}, "it was sent, and is paid for"
