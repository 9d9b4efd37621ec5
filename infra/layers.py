"""Owns the code of functions: their folders, the shared layer and the dependency layers.

The dependency layers are built from the hashed locks for the functions' own Python and processor,
without Docker; refuses to build a package from source, or one whose hash the lock does not name.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PYTHON: Final = "3.13"
PLATFORM: Final = "aarch64-manylinux_2_28"
DEPENDENCY_LAYERS: Final = ("core", "net", "api", "tools")
SHARED_LAYER: Final = "mesh"
LAYER_BYTES_MAX: Final = 250 * 1024 * 1024
"""Lambda's bound on a function with all its layers, unzipped."""


class LayerMissing(RuntimeError):
    """A dependency layer is not built, and what it is made of cannot be had from here."""


def lock_of(layer: str) -> Path:
    """The hashed lock that the layer is made of."""
    return ROOT / "requirements" / f"runtime-{layer}.txt"


def folder_of(layer: str) -> Path:
    """Where the layer is built: a folder named by what it is made of, so none is ever stale."""
    made_of = hashlib.sha256(lock_of(layer).read_bytes() + f"{PYTHON} {PLATFORM}".encode())
    return ROOT / "build" / "layers" / f"{layer}-{made_of.hexdigest()[:16]}"


def build(layer: str) -> Path:
    """Builds the layer unless it is there already, and returns its folder.

    What is cached is used first, so a machine that built it before needs no network. Raises
    LayerMissing when uv cannot get what the lock names.
    """
    folder = folder_of(layer)
    if folder.exists():
        return folder
    half = folder.with_suffix(".half")
    for network in ("--offline", None):
        shutil.rmtree(half, ignore_errors=True)
        done = subprocess.run(
            [
                *(str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet"),
                *((network,) if network else ()),
                *("--target", str(half / "python"), "--link-mode", "copy"),
                *("--python-version", PYTHON, "--python-platform", PLATFORM),
                *("--only-binary", ":all:", "--no-deps", "--require-hashes"),
                *("--requirement", str(lock_of(layer))),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            break
    else:
        shutil.rmtree(half, ignore_errors=True)
        raise LayerMissing(
            f"the layer `{layer}` is not built, and its packages are neither cached nor reachable; "
            f"run `make layers` once where packages can be installed\n{done.stderr.strip()}"
        )
    # Command-line scripts name this machine's interpreter; the lock file is uv's own.
    shutil.rmtree(half / "python" / "bin", ignore_errors=True)
    (half / "python" / ".lock").unlink(missing_ok=True)
    half.rename(folder)
    return folder


class Built:
    """The real code: functions' folders, the source tree, and layers built from the locks."""

    def function(self, name: str) -> Path:
        """The folder of the function's handler. Raises FileNotFoundError when there is none."""
        folder = ROOT / "functions" / name
        if not (folder / "handler.py").is_file():
            raise FileNotFoundError(f"functions/{name}/handler.py: the topology names it")
        return folder

    def layer(self, name: str) -> Path:
        """The layer's folder, whose child `python` Lambda puts on the path."""
        return ROOT / "layers" / SHARED_LAYER if name == SHARED_LAYER else build(name)


def bytes_of(folder: Path) -> int:
    """The bytes of all files below `folder`, caches of compiled code excepted."""
    return sum(
        f.stat().st_size
        for f in folder.rglob("*")
        if f.is_file() and "__pycache__" not in f.parts and ".egg-info" not in str(f)
    )


def main(names: Iterable[str] = DEPENDENCY_LAYERS) -> int:
    """Builds the layers and says how large each is."""
    total = 0
    for name in names:
        try:
            folder = build(name)
        except LayerMissing as missing:
            print(missing, file=sys.stderr)
            return 1
        size = bytes_of(folder)
        total += size
        print(f"{name:6} {size / 1e6:6.1f} MB  {folder.relative_to(ROOT)}")
    print(f"{'all':6} {total / 1e6:6.1f} MB  of {LAYER_BYTES_MAX / 1e6:.0f} MB a function may hold")
    return 0 if total < LAYER_BYTES_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
