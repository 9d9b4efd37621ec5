"""The operator API of runs, and of why a turn did or did not happen."""

from mesh import app
from mesh.operator import runs as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("operator_runs")
