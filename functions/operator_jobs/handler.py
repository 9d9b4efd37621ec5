"""The operator API of long changes that were ordered."""

from mesh import app
from mesh.operator import jobs as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("operator_jobs")
