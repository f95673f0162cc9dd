"""
What Spot costs in money and time, as formulas: standard library only, no clock, no I/O.

Symbols, as the docstrings use them; times in seconds and hazards per hour unless said:

======  =====================================================================================
λ       interruptions per hour of the *pool*; a gang in one pool is lost together, so never n·λ
λ_f     losses per hour that no notice announces: GPU faults, out of memory, a dead host
C       time a periodic checkpoint stops the job
U       further time until that checkpoint is durable
D       time from EC2's notice until the host knows of it
E       time from knowing until the emergency checkpoint is durable
B, R    launch until the agent is ready; restore of a checkpoint
q       recall: probability that the emergency checkpoint is durable before the reclaim
T       time between periodic checkpoints
ω       overhead: paid or lost time per useful time
======  =====================================================================================

``spending`` break-even, waste, first-hour credit; ``interval`` how often to save; ``odds`` the
chances of getting through; ``recall`` what fits in the notice; ``deadline`` uniform progress;
``pools`` histories and scores; ``rebalance`` what advice is worth.
"""
