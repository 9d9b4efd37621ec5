"""The operator API of the audit trail."""

from mesh import app
from mesh.operator import audit as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("operator_audit")
