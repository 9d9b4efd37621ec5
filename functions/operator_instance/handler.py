"""The operator API of the instance's own affairs."""

from mesh import app
from mesh.operator import instance as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("operator_instance")
