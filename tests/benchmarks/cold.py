"""Owns one fresh process of a benchmark: the ingress function, or what no function can do without.

Run as a script, `cold.py ours|bare import|first`, with what to replay on standard input; prints
the CPU seconds that it took. Refuses to load anything of its own before the clock runs.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from time import process_time
from typing import Any

ROOT = Path(__file__).parents[2]


def ours(given: dict[str, Any], first: bool) -> None:
    """Imports the handler's module and builds the function with its clients; maybe answers."""
    import_module("handler")  # what Lambda imports
    from mesh.app import Ports, build
    from mesh.kernel.settings import Settings
    from mesh.storage.clients import SessionClients, new_session

    session = new_session()
    if first:
        session.register("before-send", import_module("replay").Replay(given["answers"]))
    ports = Ports(Settings.from_environment(), clients=SessionClients(session))
    function = build("generic_ingress", ports)
    if first:
        answer = function(given["event"], None)
        assert answer["statusCode"] == 202, answer


def bare(given: dict[str, Any], first: bool) -> None:
    """Imports botocore and makes the same two clients; maybe makes one call."""
    from botocore.config import Config
    from botocore.session import get_session

    session = get_session()
    if first:
        session.register("before-send", import_module("replay").Replay(given["answers"]))
    config = Config(
        connect_timeout=0.5,
        read_timeout=1,
        retries={"mode": "standard", "total_max_attempts": 2},
        max_pool_connections=16,
    )
    dynamodb = session.create_client("dynamodb", config=config)
    session.create_client("sqs", config=config)
    if first:
        dynamodb.get_item(TableName="t", Key={"pk": {"S": "a"}, "sk": {"S": "b"}})


def main() -> None:
    who, what = sys.argv[1:]
    sys.path[:0] = [
        str(ROOT / "layers/mesh/python"),
        str(ROOT / "functions/generic_ingress"),
        str(Path(__file__).parent),
    ]
    given = json.load(sys.stdin)
    run = {"ours": ours, "bare": bare}[who]
    begun = process_time()
    run(given, what == "first")
    taken = process_time() - begun
    print(taken, flush=True)  # noqa: T201 - its answer


if __name__ == "__main__":
    main()
