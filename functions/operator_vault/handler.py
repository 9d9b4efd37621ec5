"""The operator API of what agents keep."""

from mesh import app
from mesh.operator import vault as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("operator_vault")
