"""The policies by name, so that a pool can switch one off."""

from __future__ import annotations

from enum import StrEnum


class Policy(StrEnum):
    """What follows a formula unless it is switched off, and what happens then."""

    INTERVAL = "interval"  # saves are asked for at T*; off: at --save-every, or not at all
    SCORES = "scores"  # pools by price, history and failed launches; off: by price
    SUSPECTS = "suspects"  # advice makes a pool cold; off: only an interruption does
    DEADLINE = "deadline"  # uniform progress; off: tiers in their order, whatever is due
    BREAK_EVEN = "break-even"  # on demand where Spot has cost more; off: tiers in their order
    FIRST_HOUR = "first-hour"  # a host leaves once it isn't free; off: EC2 takes it in its time
    ADVICE = "advice"  # advice is worth a save from C/p on; off: always
