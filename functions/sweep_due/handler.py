"""Every minute: what is due, lost or stuck is rung for again."""

from mesh import app

handler = app.lazy("sweep_due")
