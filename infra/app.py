"""Owns the CDK app: for each environment the stateful and the stateless stack, from one topology.

Refuses to reach AWS or the network: synthesizing looks nothing up.
"""

from __future__ import annotations

import sys
from pathlib import Path

from infra import layers
from infra.settings import Environment, environments
from infra.stacks.stateful import Stateful
from infra.stacks.stateless import Code, Stateless

from aws_cdk import App, Tags  # isort: skip  # infra.stacks names the Node that jsii starts

from infra import nag  # isort: skip

OUTDIR = layers.ROOT / "build" / "cdk.out"


def add(app: App, environment: Environment, code: Code) -> tuple[Stateful, Stateless]:
    """Adds the environment's two stacks to the app."""
    state = Stateful(app, environment)
    stateless = Stateless(app, environment, state, code)
    for stack in (state, stateless):
        Tags.of(stack).add("mesh:environment", environment.name)
        nag.acknowledge(stack)
    return state, stateless


def build(outdir: Path, code: Code) -> App:
    """The app with every environment, cdk-nag on watch."""
    app = App(outdir=str(outdir), analytics_reporting=False)
    for environment in environments().values():
        add(app, environment, code)
    nag.hold(app)
    return app


def main() -> int:
    """Synthesizes all environments and says what came out."""
    try:
        app = build(OUTDIR, layers.Built())
    except (layers.LayerMissing, FileNotFoundError) as missing:
        print(missing, file=sys.stderr)
        return 1
    for stack in app.synth().stacks:
        print(f"{stack.stack_name:24} {len(stack.template['Resources']):4} resources")
    print(f"templates in {OUTDIR.relative_to(layers.ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
