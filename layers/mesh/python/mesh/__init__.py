"""Mesh: an agent runtime that third parties drive over signed webhooks."""

__version__ = "0.1.0"
