"""The Lambda edge: settings, event parsers, wiring and metrics. Pydantic stops here."""
