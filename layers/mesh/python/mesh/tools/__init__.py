"""Owns the second plane, actions out: tools, what is offered of them, and the gate before a call.

Refuses to know where an utterance came in: `connectors` and `tools` cannot import each other.
"""
