"""
Two or more ranks on one host, interruptible at every step.

    torchrun --standalone --nproc-per-node 2 --shutdown-timeout 90 torchrun_ddp.py --steps 300

Keep ``--max-restarts`` at 0: torchrun takes the ranks' status 75 for a failure, and would start
them again on the host that is going away. Its own status is then 1: the host goes by the
checkpoint.
"""

from __future__ import annotations

import argparse
import os
import time

import reprieve_job

parser = argparse.ArgumentParser(description="Train a small network on a made-up task.")
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--step-seconds", type=float, default=0.0, help="least duration of a step")
options = parser.parse_args()

# Before `import torch`, which takes seconds: the host may ask from here on.
job = reprieve_job.connect(total_steps=options.steps, every=600, framework="torchrun")

import torch  # noqa: E402
from torch import distributed, nn  # noqa: E402

from reprieve_job.torch import Ranks, random_state, set_random_state  # noqa: E402

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
ranks = Ranks(job)
device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
torch.set_num_threads(1)

inputs = torch.randn(4096, 16, generator=torch.Generator().manual_seed(1))
targets = inputs[:, :4].prod(dim=1, keepdim=True).sign()
torch.manual_seed(0)  # the same weights everywhere
network = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1)).to(device)
model = nn.parallel.DistributedDataParallel(network)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(100 + rank)  # but each its own dropout

if job.resume_dir is not None:
    saved = torch.load(job.resume_dir / "state.pt", map_location=device, weights_only=True)
    network.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    set_random_state(torch.load(job.resume_dir / f"random-{rank}.pt", weights_only=True))

for step in range((job.resume_step or 0) + 1, options.steps + 1):
    # The order is a function of the step alone, so the place in it needs no saving.
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(step))
    batch = order[rank : 64 * world_size : world_size]
    loss = nn.functional.mse_loss(model(inputs[batch].to(device)), targets[batch].to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(options.step_seconds)

    if ranks.should_save(step) or step == options.steps:
        with ranks.checkpoint(step) as folder:
            if rank == 0:
                state = {"model": network.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, folder / "state.pt")
            torch.save(random_state(), folder / f"random-{rank}.pt")
    if ranks.should_exit():
        distributed.destroy_process_group()
        raise SystemExit(reprieve_job.REQUEUE)

if rank == 0:
    torch.save(network.state_dict(), "model.pt")
distributed.destroy_process_group()
job.done(options.steps)
print(f"finished at step {options.steps}", flush=True)
