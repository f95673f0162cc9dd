"""The Lambda edge: settings, event parsers, wiring and metrics. Pydantic and Powertools stop here."""
