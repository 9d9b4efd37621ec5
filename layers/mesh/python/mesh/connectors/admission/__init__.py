"""Owns admission: the transaction that takes an utterance in, whatever surface it came from."""

from mesh.connectors.admission.arrival import Admitted, Arrival
from mesh.connectors.admission.transaction import Admission, DigestOf

__all__ = ["Admission", "Admitted", "Arrival", "DigestOf"]
