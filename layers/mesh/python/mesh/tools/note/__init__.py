"""Owns the package `note`: what an agent keeps in memory from one run to the next."""
