"""The operator API of the doctor."""

from mesh import app
from mesh.operator import doctor as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("operator_doctor")
