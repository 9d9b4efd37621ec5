"""The operator API of agents' tools."""

from mesh import app
from mesh.operator import tools as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("operator_tools")
