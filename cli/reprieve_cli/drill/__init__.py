"""Drills: a scenario is played on the embedded cloud, and what must hold is looked at."""
