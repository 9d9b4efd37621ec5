"""`mesh local` as people run it: a process of its own, real sockets, signals."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.local.receiver import Receiver
from mesh.operator.cli.third_party import INGRESS_PATH, signed_headers
from mesh.operator.client import ApiError, OperatorClient
from mesh.security import signing

START_S = 30.0
STOP_S = 5.0
COMMAND = (sys.executable, "-c", "from infra.local.command import command; command()")


@dataclass
class Local:
    """A running `mesh local`, and a receiver that it may reach."""

    process: subprocess.Popen[str]
    ready: dict[str, Any]
    receiver: Receiver
    log: Path
    client: OperatorClient

    def post(self, install_id: str, secret: str, message_id: str, **more: str) -> httpx.Response:
        payload = {
            "message_id": message_id,
            "conversation_key": "room",
            "actor_id": "grace",
            "body": "Hello",
            **more,
        }
        body = json.dumps(payload).encode()
        headers = signed_headers(secret, install_id, body, int(time.time()))
        return httpx.post(self.ready["gateway"] + INGRESS_PATH, headers=headers, content=body)


def started(log: Path, *arguments: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """Starts the command and waits for its ready line."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*COMMAND, "--port", "0", "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    late = threading.Timer(START_S, process.kill)
    late.start()
    line = process.stdout.readline()
    late.cancel()
    assert line, f"it did not start: {log.read_text()}"
    return process, json.loads(line)


def stopped(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> int:
    """Signals the process and waits; its exit code."""
    process.send_signal(number)
    try:
        return process.wait(STOP_S)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    receiver = Receiver()
    log = tmp_path_factory.mktemp("local") / "log"
    process, ready = started(log, "--allow-egress", receiver.pair)
    client = OperatorClient(ready["gateway"], ready["token"])
    running = Local(process, ready, receiver, log, client)
    running.client.call("POST", "/api/agents", body={"slug": "ada"}, idempotency_key="agent")
    yield running
    client.close()
    assert stopped(process) == 0
    receiver.close()


def install(local: Local, key: str, **settings: Any) -> tuple[str, str]:
    """An enabled install: its id and its secret."""
    client = local.client
    path = "/api/agents/ada/connectors"
    made = client.call("POST", path, body={"kind": "generic", **settings}, idempotency_key=key)
    reached = client.call("POST", f"/api/connectors/{made['install_id']}/enable")
    assert reached["state"] == "enabled", reached
    return made["install_id"], made["secret"]


def test_the_ready_line_says_where_it_is_and_how_to_get_in(local: Local) -> None:
    assert local.ready["ready"] is True
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", local.ready["gateway"])
    assert local.ready["pid"] == local.process.pid
    assert local.client.call("GET", "/api/whoami")["role"] == "admin"


def test_an_utterance_comes_back_as_a_signed_reply_and_can_be_explained(local: Local) -> None:
    install_id, secret = install(local, "whole", delivery_url=local.receiver.url)
    answer = local.post(install_id, secret, "m1")
    assert answer.status_code == 202, answer.text
    delivery = local.receiver.wait_for("message.reply")
    headers = signing.parse_headers(
        delivery.headers["x-mesh-install"],
        delivery.headers["x-mesh-timestamp"],
        delivery.headers["x-mesh-signature"],
    )
    assert headers is not None
    assert signing.verify_outbound(headers, delivery.body, [secret])
    assert delivery.document["in_reply_to"] == "m1"
    asked = {"install_id": install_id, "conversation_key": "room", "message_id": "m1"}
    by_caller = local.client.call("GET", "/api/explain", params=asked)
    by_id = local.client.call("GET", f"/api/explain/{answer.json()['id']}")
    assert [event["kind"] for event in by_caller["events"]]
    assert by_caller["subject"] == by_id["subject"]
    again = local.post(install_id, secret, "m1")
    assert (again.status_code, again.json()["status"]) == (200, "duplicate")


def test_the_opaque_401_is_the_same_on_the_wire_for_every_cause(local: Local) -> None:
    install_id, _ = install(local, "opaque")
    wrong = "whsec_" + "A" * 43 + "="
    nobody = "ins_00000000000000000000000000"
    url = local.ready["gateway"] + INGRESS_PATH
    body = b"{}"
    kept = []
    for headers in (
        {"Content-Type": "application/json"},
        signed_headers(wrong, install_id, body, int(time.time())),
        signed_headers(wrong, nobody, body, int(time.time())),
        signed_headers(wrong, install_id, body, 1),
    ):
        answer = httpx.post(url, headers=headers, content=body)
        passing = ("x-request-id", "date", "apigw-requestid")
        lines = [(k, v) for k, v in answer.headers.raw if k.decode().lower() not in passing]
        kept.append((answer.status_code, lines, answer.content))
    assert kept[0][0] == 401
    assert kept.count(kept[0]) == len(kept)


def test_a_loopback_port_that_was_not_named_is_not_reached(local: Local) -> None:
    body = {"kind": "generic", "delivery_url": "http://127.0.0.1:9/x"}
    with pytest.raises(ApiError) as refusal:
        local.client.call(
            "POST", "/api/agents/ada/connectors", body=body, idempotency_key="refused"
        )
    assert refusal.value.status == 422


def test_logs_are_json_and_hold_no_secret(local: Local) -> None:
    install_id, secret = install(local, "logs", delivery_url=local.receiver.url)
    local.post(install_id, secret, "m-log", body="canary-of-an-utterance")
    httpx.post(local.ready["gateway"] + INGRESS_PATH, content=b"canary-of-an-utterance")
    text = local.log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines
    assert all(isinstance(line, dict) for line in lines)
    for secret_text in (secret, local.ready["token"], "canary-of-an-utterance", "v1="):
        assert secret_text not in text


def test_it_listens_on_loopback_alone(local: Local) -> None:
    port = int(local.ready["gateway"].rpartition(":")[2])
    listening = [
        line.split()[1]
        for line in Path(f"/proc/{local.process.pid}/net/tcp").read_text().splitlines()
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{port:04X}")
    ]
    assert listening == [f"0100007F:{port:04X}"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: int) -> None:
    process, ready = started(tmp_path / "log")
    assert stopped(process, number) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(ready["gateway"] + "/healthz")


def refused(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from mesh.operator.cli.main import run; sys.exit(run(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, "local", *arguments],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_a_port_in_use_is_one_line_and_exit_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = refused("--port", str(port))
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == f"mesh: port {port} is in use; give another, or --port 0\n"


@pytest.mark.parametrize(
    "flags",
    [
        ("--port", "65536"),
        ("--port", "http"),
        ("--allow-egress", "10.0.0.1:80"),
        ("--allow-egress", "example.com:80"),
        ("--allow-egress", "127.0.0.1"),
        ("--provider-origin", "http://127.0.0.1:9001"),
        ("--provider-origin", "nobody=http://127.0.0.1:9001"),
        ("--provider-origin", "brave=http://10.0.0.1:9001"),
        ("--provider-origin", "brave=https://127.0.0.1:9001"),
        ("--provider-origin", "brave=http://127.0.0.1:9001/res"),
        (
            *("--provider-origin", "brave=http://127.0.0.1:9001"),
            *("--provider-origin", "brave=http://127.0.0.1:9002"),
        ),
        ("--faults", "often"),
        ("--no-such-flag",),
    ],
)
def test_a_bad_flag_is_one_line_and_exit_2(
    flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    from mesh.operator.cli.main import run

    assert run(["local", *flags]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("mesh: ")
    assert err.count("\n") == 1
