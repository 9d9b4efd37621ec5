"""Owns what goes on after its request was answered: jobs, and enablings that stopped short."""
