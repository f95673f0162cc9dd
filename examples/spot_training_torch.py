"""
The PyTorch twin of spot_training.py: model, optimizer, schedule, data order and random state.

    python spot_training_torch.py --steps 300 --step-seconds 0.02 --out model.pt
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import reprieve_job

parser = argparse.ArgumentParser(
    description="Train a small network with dropout on a made-up task."
)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--step-seconds", type=float, default=0.0, help="least duration of a step")
parser.add_argument("--save-every", type=float, default=600.0, help="seconds between saves")
parser.add_argument("--out", type=Path, help="also write the final weights to this file")
options = parser.parse_args()

# Before `import torch`, which takes seconds: the host may ask from here on.
job = reprieve_job.connect(total_steps=options.steps, every=options.save_every, framework="pytorch")

import torch  # noqa: E402
from torch import nn  # noqa: E402

BATCH = 64

torch.manual_seed(0)
torch.use_deterministic_algorithms(mode=True)
torch.set_num_threads(1)
device = "cuda" if torch.cuda.is_available() else "cpu"

inputs = torch.randn(4096, 32, generator=torch.Generator().manual_seed(1))
targets = inputs[:, :8].prod(dim=1, keepdim=True).sign()

model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=options.steps + 1)
shuffling = torch.Generator().manual_seed(2)
order, position = torch.randperm(len(inputs), generator=shuffling), 0


def save(folder: Path, step: int) -> None:
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "data": (order, position, shuffling.get_state()),
        "random": torch.get_rng_state(),
        "cuda_random": torch.cuda.get_rng_state_all() if device == "cuda" else [],
        "step": step,
    }
    torch.save(state, folder / "state.pt")


if job.resume_dir is not None:
    saved = torch.load(job.resume_dir / "state.pt", weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    schedule.load_state_dict(saved["schedule"])
    order, position, shuffling_state = saved["data"]
    shuffling.set_state(shuffling_state)
    torch.set_rng_state(saved["random"])
    if device == "cuda":
        torch.cuda.set_rng_state_all(saved["cuda_random"])
    print(f"resumed from step {job.resume_step}", flush=True)

for step in range((job.resume_step or 0) + 1, options.steps + 1):
    if position + BATCH > len(order):
        order, position = torch.randperm(len(inputs), generator=shuffling), 0
    batch = order[position : position + BATCH]
    position += BATCH
    loss = nn.functional.mse_loss(model(inputs[batch].to(device)), targets[batch].to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    time.sleep(options.step_seconds)

    job.step(step)
    if job.should_save() or step == options.steps:
        with job.checkpoint(step) as folder:
            save(folder, step)
        print(f"saved step {step} loss {loss.item():.4f}", flush=True)
    if job.should_exit():
        raise SystemExit(reprieve_job.REQUEUE)

if options.out is not None:
    torch.save(model.state_dict(), options.out)
job.done(options.steps)
print(f"finished at step {options.steps}", flush=True)
