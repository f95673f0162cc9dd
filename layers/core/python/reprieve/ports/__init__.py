"""What the use cases and the agent need from the outside world, as small protocols."""
