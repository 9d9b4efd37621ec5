"""Owns the package `conversation_search`: looking back in what the agent heard and said."""
