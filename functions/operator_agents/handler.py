"""The operator API of agents."""

from mesh import app
from mesh.operator import agents as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("operator_agents")
