"""Owns the package `web`: search and page reading by hosted providers, one surface for all of
them.

Refuses a tool or a branch for a vendor: a provider is one entry of the catalogue and one adapter.
Refuses to reach a website itself: only the origins that the catalogue declares are connected to.
"""
