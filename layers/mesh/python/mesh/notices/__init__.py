"""Owns how notices reach people: the bus of EventBridge, and the operator's webhook."""
