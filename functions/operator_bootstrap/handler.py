"""Invoked through IAM alone: mints an admin token."""

from mesh import app
from mesh.operator import bootstrap as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("operator_bootstrap")
