"""The operator API about itself: health, the asker, the document."""

from mesh import app
from mesh.operator import meta as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("operator_meta")
