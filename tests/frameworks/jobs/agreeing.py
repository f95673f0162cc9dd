"""
One of two ranks, which see different hosts: only rank 1's has a request.

Prints what this rank was told. Arguments: rank, file of the rendezvous.
"""

import json
import sys
from pathlib import Path

import reprieve_job

rank, rendezvous = int(sys.argv[1]), sys.argv[2]
job = reprieve_job.connect(total_steps=100)

from torch import distributed  # noqa: E402

from reprieve_job.torch import Ranks, agree  # noqa: E402

distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
ranks = Ranks(job)
said: dict[str, object] = {
    "nobody": agree(flag=False),
    "rank 1": agree(flag=rank == 1),
    "asked": ranks.should_save(1),
}
try:
    with ranks.checkpoint(1) as folder:
        # On rank 1 there is no such folder.
        (folder / ("nowhere" if rank == 1 else ".") / f"rank-{rank}").write_text(str(rank))
except (OSError, reprieve_job.CheckpointError) as error:
    said["failure"] = type(error).__name__
said["after a failure"] = ranks.should_save(2)
with ranks.checkpoint(2) as folder:
    (folder / f"rank-{rank}").write_text(str(rank))
said["after a save"] = ranks.should_save(3)
said["leave"] = ranks.should_exit()
distributed.destroy_process_group()
Path(f"said-{rank}.json").write_text(json.dumps(said))
