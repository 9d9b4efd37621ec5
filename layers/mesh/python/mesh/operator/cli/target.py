"""Owns which instance of Mesh a command talks to, and with which token.

Refuses a token on the command line, where other users of the machine could read it; a token that
`mesh login` kept goes to the address that it was kept for and nowhere else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from mesh.operator.cli.failure import CommandError
from mesh.operator.cli.reading import bytes_of
from mesh.operator.client import BadUrlError, checked_url

NO_URL = "no URL: set MESH_URL, give --url, or run `mesh login`"
NO_TOKEN = "no token: set MESH_TOKEN, give --token-file, or run `mesh login`"  # noqa: S105


@dataclass(frozen=True, slots=True)
class Target:
    """An instance, and the token for it where there is one."""

    url: str
    token: str | None

    def __repr__(self) -> str:
        return f"Target({self.url})"


def login_file(environ: Mapping[str, str]) -> Path:
    """Where `mesh login` keeps them: below `MESH_CONFIG_DIR`, or the user's own place."""
    folder = environ.get("MESH_CONFIG_DIR") or click.get_app_dir("mesh")
    return Path(folder) / "login.json"


def find(url: str | None, token_file: Path | None, environ: Mapping[str, str]) -> Target:
    """The instance by `--url`, MESH_URL, or the login; the token likewise. CommandError (2)."""
    kept = read_login(environ)
    address = url or environ.get("MESH_URL") or (kept.url if kept else None)
    if address is None:
        raise CommandError(NO_URL, exit_code=2)
    try:
        address = checked_url(address)
    except BadUrlError as error:
        raise CommandError(str(error), exit_code=2) from None
    if token_file is not None:
        return Target(address, _read_token(token_file))
    token = environ.get("MESH_TOKEN") or None
    if token is None and kept is not None and kept.url == address:
        token = kept.token
    return Target(address, checked_token(token) if token is not None else None)


def checked_token(token: str) -> str:
    """`token` if it can stand in a header. CommandError (2), which does not show it."""
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise CommandError("that is not an operator token; one begins with mop_", exit_code=2)
    return token


def read_login(environ: Mapping[str, str]) -> Target | None:
    """What `mesh login` kept; None where there is nothing."""
    path = login_file(environ)
    try:
        document = json.loads(bytes_of(path))
        return Target(str(document["url"]), str(document["token"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise CommandError(f"{path} cannot be read; run `mesh login` again", exit_code=2) from None


def write_login(target: Target, environ: Mapping[str, str]) -> Path:
    """Keeps address and token for this user alone (mode 0600), as a whole or not at all."""
    path = login_file(environ)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"url": target.url, "token": target.token}, file)
    fresh.replace(path)
    return path


def _read_token(path: Path) -> str:
    try:
        return checked_token(bytes_of(path).decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError):
        raise CommandError(f"--token-file {path} cannot be read", exit_code=2) from None
