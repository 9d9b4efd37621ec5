"""The operator API of web access."""

from mesh import app
from mesh.operator import web_access as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("operator_web_access")
