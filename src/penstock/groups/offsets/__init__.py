"""Committed offsets: where a group goes on reading, of each partition."""
