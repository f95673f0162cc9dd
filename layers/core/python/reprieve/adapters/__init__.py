"""The ports, on AWS and in memory."""
