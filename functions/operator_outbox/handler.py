"""The operator API of the outbox."""

from mesh import app
from mesh.operator import outbox as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("operator_outbox")
