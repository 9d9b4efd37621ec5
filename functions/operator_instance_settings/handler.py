"""The operator API of the instance's settings and model keys."""

from mesh import app
from mesh.operator import instance_settings as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("operator_instance_settings")
