"""Queue `turns`: a conversation has work for its agent."""

from mesh import app

handler = app.lazy("turn_worker")
