"""Owns what the doctor looks at: one module for what has an owner of its own.

Refuses to change anything, and to find what nobody can act on.
"""
