"""Owns the command `mesh local`: the whole system in one process, on loopback.

Refuses to be reachable from anywhere else, and to let what it runs reach more than the internet's
public addresses and the loopback ports that were named.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from infra.local.stack import RunningStack
    from mesh.kernel.clock import Clock

PROVIDERS: Final = (
    "anthropic",
    "bedrock",
    "brave",
    "browserbase",
    "cloudflare",
    "firecrawl",
    "openai",
    "perplexity",
    "slack",
    "telegram",
)


class PortTakenError(click.ClickException):
    """Somebody listens on the port already."""

    exit_code = 2


def _read_pairs(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    for value in values:
        if not is_loopback_pair(value):
            raise click.BadParameter(f"{value!r} is not HOST:PORT on loopback, as 127.0.0.1:9000")
    return values


def _read_origins(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """The pairs that the named providers' stand-ins answer at."""
    pairs: dict[str, str] = {}
    for value in values:
        name, equals, url = value.partition("=")
        if not equals or name not in PROVIDERS:
            raise click.BadParameter(f"{name!r} is no provider; one of {', '.join(PROVIDERS)}")
        pair = url.removeprefix("http://").removesuffix("/")
        if not url.startswith("http://") or not is_loopback_pair(pair):
            raise click.BadParameter(f"{url!r} is not a URL such as http://127.0.0.1:9001")
        if name in pairs:
            raise click.BadParameter(f"{name} has one stand-in, and two are given")
        pairs[name] = pair
    return pairs


def is_loopback_pair(pair: str) -> bool:
    """Whether `pair` is a loopback host and a port."""
    from infra.local.egress import LoopbackJudge

    try:
        LoopbackJudge([pair])
    except ValueError:
        return False
    return True


@click.command("local")
@click.option("--port", type=click.IntRange(0, 65_535), default=8787, show_default=True)
@click.option(
    "--allow-egress",
    "pairs",
    callback=_read_pairs,
    multiple=True,
    metavar="HOST:PORT",
    help="Let deliveries and other requests reach this loopback port, over http. May be repeated.",
)
@click.option(
    "--provider-origin",
    "origins",
    callback=_read_origins,
    multiple=True,
    metavar="NAME=URL",
    help="Lead what goes to a provider's own origin to a stand-in on loopback, such as"
    " brave=http://127.0.0.1:9001: judged as the provider's, and sent as it is. Once a provider."
    f" NAME is one of {', '.join(PROVIDERS)}.",
)
@click.option("--faults", type=int, metavar="SEED", help="Inject faults of AWS, seeded.")
@click.option("--json", "as_json", is_flag=True, help="Say ready as one JSON line.")
def command(
    *,
    port: int,
    pairs: tuple[str, ...],
    origins: dict[str, str],
    faults: int | None,
    as_json: bool,
) -> None:
    """Run the whole system here, on loopback.

    Everything is in this one process: the embedded AWS, the gateway, every function, the queues
    and the schedule. Nothing outlives it: agents, installs and messages are gone when it stops.
    Ctrl-C stops it. Logs go to standard error, one JSON object a line.
    """
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    running = compose(port, pairs, faults, stand_ins=origins)
    with running.stack.aws.without_faults():
        token = running.stack.bootstrap()
    running.start()
    _say_ready(running, token, as_json=as_json)
    stop.wait()
    running.stop()


def compose(
    port: int,
    pairs: Sequence[str],
    faults: int | None = None,
    level: str = "INFO",
    *,
    stand_ins: Mapping[str, str] = MappingProxyType({}),
    clock: Clock | None = None,
) -> RunningStack:
    """A stack that listens on `port`, on the machine's own clock unless another one is given, which
    must go as fast. PortTakenError when the port is used.

    `stand_ins` has the pair of a provider's stand-in, by one of `PROVIDERS`. Of a provider whose
    origin is declared, what goes there goes to it; of every other it is let through alone.
    """
    # Imported here: `mesh --help` and the other commands need none of it.
    from infra.local.aws.faults import Faults
    from infra.local.aws.local import LocalAws
    from infra.local.egress import ORIGINS, LoopbackEgress
    from infra.local.server import Server
    from infra.local.stack import RunningStack, Stack
    from mesh.kernel.clock import SystemClock
    from mesh.kernel.ids import SystemRandom
    from mesh.kernel.log import JsonLog

    log = JsonLog("local", level)
    try:
        server = Server(port, log)
    except OSError:
        raise PortTakenError(f"port {port} is in use; give another, or --port 0") from None
    clock = clock or SystemClock()
    stack = Stack(
        aws=LocalAws(clock=clock, faults=None if faults is None else Faults(faults)),
        clock=clock,
        random=SystemRandom(),
        egress=LoopbackEgress(
            [*pairs, *stand_ins.values()],
            clock,
            stand_ins={name: it for name, it in stand_ins.items() if name in ORIGINS},
        ),
        log=lambda function: JsonLog(function, level),
        base_url=server.url,
    )
    return RunningStack(stack, server, log)


def _say_ready(running: RunningStack, token: str, *, as_json: bool) -> None:
    url = running.stack.base_url
    if as_json:
        ready = {
            "ready": True,
            "gateway": url,
            "token": token,
            "console": None,
            "pid": os.getpid(),
        }
        click.echo(json.dumps(ready, separators=(",", ":")))
        return
    click.echo(
        f"""Mesh runs at {url}, in this process alone; nothing outlives it. Ctrl-C stops it.

In another terminal:

  export MESH_URL={url}
  export MESH_TOKEN={token}
  mesh agent create ada
  mesh connector create generic --agent ada --enable
  mesh send --connector ins_… "Hello"        # asks for the secret
  mesh explain msg_…
"""
    )
