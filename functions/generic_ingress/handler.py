"""POST /generic/events: a third party's signed utterance."""

from mesh.kernel.start import uncollected

with uncollected():
    from mesh import app
    from mesh.connectors.generic import ingress as _loaded_at_start  # noqa: F401 - billed as init

handler = app.lazy("generic_ingress")
