"""
A training loop with Accelerate, interruptible at every step.

    python accelerate_loop.py --epochs 3
"""

from __future__ import annotations

import argparse
import time

import reprieve_job

parser = argparse.ArgumentParser(description="Train a small network on a made-up task.")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--step-seconds", type=float, default=0.0, help="least duration of a step")
options = parser.parse_args()

# Before `import accelerate`, which takes many seconds: the host may ask from here on.
job = reprieve_job.connect(every=600, framework="accelerate")

import torch  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from accelerate.utils import set_seed  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from reprieve_job.accelerate import Trigger  # noqa: E402

set_seed(0)
torch.set_num_threads(1)
inputs = torch.randn(320, 16, generator=torch.Generator().manual_seed(1))
data = TensorDataset(inputs, inputs[:, :4].prod(dim=1, keepdim=True).sign())
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1))
accelerator = Accelerator()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer = accelerator.prepare(model, optimizer)


def loader_of(epoch: int) -> DataLoader:
    """Shuffle anew for each epoch, by nothing but its number: so its rest can be found again."""
    shuffling = torch.Generator().manual_seed(epoch)
    return accelerator.prepare(DataLoader(data, batch_size=8, shuffle=True, generator=shuffling))


trigger = Trigger(job, accelerator)
if job.resume_dir is not None:
    accelerator.load_state(trigger.resume_from)
step = job.resume_step or 0
per_epoch = len(loader_of(0))
for epoch in range(step // per_epoch, options.epochs):
    batches = accelerator.skip_first_batches(loader_of(epoch), step % per_epoch)
    for batch, targets in batches:
        time.sleep(options.step_seconds)
        loss = nn.functional.mse_loss(model(batch), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        trigger.after(step)

accelerator.save(accelerator.unwrap_model(model).state_dict(), "model.pt")
job.done(step)
print(f"finished at step {step}", flush=True)
