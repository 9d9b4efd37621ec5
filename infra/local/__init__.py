"""Owns the local stack: the embedded AWS and what runs the functions on it. Refuses to be
deployed."""
