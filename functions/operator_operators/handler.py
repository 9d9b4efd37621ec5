"""The operator API of operators."""

from mesh import app
from mesh.operator import operators as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("operator_operators")
