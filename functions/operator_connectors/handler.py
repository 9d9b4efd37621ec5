"""The operator API of connectors."""

from mesh import app
from mesh.operator import connectors as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("operator_connectors")
