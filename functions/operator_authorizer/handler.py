"""The gateway's authorizer: who sends a request to the operator API, or nobody."""

from mesh import app
from mesh.operator import authorizer as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("operator_authorizer")
