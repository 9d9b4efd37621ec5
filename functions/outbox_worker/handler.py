"""Queues `deliveries` and `delays`: a conversation has a reply to send."""

from mesh import app

handler = app.lazy("outbox_worker")
