"""The relay: moves records from one partition's log to another's, each once and in order (ADR 11, ADR 18)."""
