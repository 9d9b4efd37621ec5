"""The operator API of conversations: what an agent heard and said."""

from mesh import app
from mesh.operator import conversations as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("operator_conversations")
