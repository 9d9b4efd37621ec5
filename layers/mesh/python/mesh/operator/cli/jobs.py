"""Owns `mesh job …`: how far a long change is, and the waiting for its end.

Refuses to hurry it: a job goes on by itself, whether somebody waits or not.
"""

from __future__ import annotations

import click

from mesh.operator.cli.command import Invocation, common
from mesh.operator.cli.failure import REFUSED
from mesh.operator.cli.terminal import when
from mesh.operator.client import Json, OperatorClient, segment

ASK_EVERY_S = 1.0


@click.group("job")
def group() -> None:
    """Long changes: show, wait."""


@group.command("show")
@click.argument("job_id")
@common
def show(invocation: Invocation, *, job_id: str) -> int:
    """How far a long change is. Exit 1 when it failed."""
    with invocation.client() as client:
        job = client.call("GET", _path(job_id))
    return tell(invocation, job)


@group.command("wait")
@click.argument("job_id")
@common
def wait(invocation: Invocation, *, job_id: str) -> int:
    """Wait until a long change has ended. Exit 1 when it failed."""
    with invocation.client() as client:
        job = client.call("GET", _path(job_id))
        job = ended(invocation, client, job)
    return tell(invocation, job)


def ended(invocation: Invocation, client: OperatorClient, job: Json) -> Json:
    """The job at its end, asked for once a second; how much is done is told meanwhile."""
    told = None
    while job["status"] == "running":
        if not invocation.as_json and job["done"] != told:
            told = job["done"]
            click.echo(f"{job['kind']}: {told} done", err=True)
        invocation.pause(ASK_EVERY_S)
        job = client.call("GET", _path(job["job_id"]))
    return job


def tell(invocation: Invocation, job: Json) -> int:
    """Prints a job; the exit code."""
    if invocation.as_json:
        invocation.terminal.document(job)
    else:
        invocation.terminal.fields(
            [
                ("job", job["job_id"]),
                ("does", job["kind"]),
                ("to", job["target"]),
                ("status", job["status"]),
                ("reason", job["reason"]),
                ("done", job["done"]),
                ("started", when(job["started_at"])),
                ("ended", when(job["ended_at"])),
            ]
        )
        if job["status"] == "running":
            click.echo(f"It goes on by itself. To wait for its end: mesh job wait {job['job_id']}")
    return REFUSED if job["status"] == "failed" else 0


def _path(job_id: str) -> str:
    return f"/api/jobs/{segment(job_id)}"
