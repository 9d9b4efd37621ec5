"""Owns the benchmarks: what a message costs, and how that compares.

Refuses absolute times: a speed is a ratio of two things measured in turn, a cost is a count.
"""
