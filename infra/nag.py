"""Owns every finding of cdk-nag that stands, with where it stands and the reason why.

Refuses a finding without one, and a reason that hides more than its own place: synthesis fails on
any finding that is not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from aws_cdk import Acknowledgment, App, Stack, Validations
from cdk_nag import AwsSolutionsChecks

from infra.stacks.grants import BEDROCK_MODELS


@dataclass(frozen=True, slots=True)
class Standing:
    """A finding that stands: the rule, the constructs by path below the stack, and the reason."""

    rule: str
    at: str
    reason: str


WHOLE_STACK: Final = ""

STANDING: Final = (
    Standing(
        "AwsSolutions::AwsSolutions-L1",
        WHOLE_STACK,
        "Functions run on Python 3.13: the wheels are built for it and the suites pass on it.",
    ),
    Standing(
        "AwsSolutions::AwsSolutions-APIG4",
        "IngressApi/*",
        "A third party proves itself by a signature over the body, which no gateway can check.",
    ),
    Standing(
        "AwsSolutions::AwsSolutions-APIG4",
        "OperatorApi/GET--healthz",
        "A health check carries no token, touches nothing and tells nothing but the version.",
    ),
    Standing(
        "AwsSolutions::AwsSolutions-IAM5[Resource::*]",
        "*Role/DefaultPolicy",
        "X-Ray takes segments for no resource in particular; nothing else names all resources.",
    ),
    *(
        Standing(
            f"AwsSolutions::AwsSolutions-IAM5[Resource::{models}]",
            "TurnWorkerRole/Resource",
            "Which models may be asked is settled at Bedrock, account by account.",
        )
        for models in BEDROCK_MODELS
    ),
)


def hold(app: App) -> None:
    """Makes synthesis fail on what AWS's own checks find."""
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))


def acknowledge(stack: Stack) -> None:
    """Records the reasons at their constructs, where the checks read them.

    To be called when the stack is complete: a construct that comes later carries no reason.
    """
    below = {
        construct.node.path.partition("/")[2]: construct for construct in stack.node.find_all()
    }
    for standing in STANDING:
        for path, construct in below.items():
            if fnmatchcase(path, standing.at):
                Validations.of(construct).acknowledge(
                    Acknowledgment(id=standing.rule, reason=standing.reason)
                )
