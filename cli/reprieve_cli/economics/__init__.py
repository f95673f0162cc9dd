"""Money and time before and after: the planner, and the simulator that tries policies on traces."""
