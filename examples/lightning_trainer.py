"""
A small network with dropout, trained with Lightning and interruptible in the middle of an epoch.

    python lightning_trainer.py --epochs 3
"""

from __future__ import annotations

import argparse
import time

import reprieve_job

parser = argparse.ArgumentParser(description="Train a small network on a made-up task.")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--step-seconds", type=float, default=0.0, help="least duration of a step")
options = parser.parse_args()

# Before `import lightning`, which takes many seconds: the host may ask from here on.
job = reprieve_job.connect(every=600, framework="lightning")

import torch  # noqa: E402
from lightning.pytorch import LightningModule, Trainer, seed_everything  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from reprieve_job.lightning import ReprieveCallback, ResumableLoader  # noqa: E402


class Network(LightningModule):
    """Dropout stays on: a resumed run must draw the same random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1))

    def training_step(self, batch: list[torch.Tensor], _number: int) -> torch.Tensor:
        time.sleep(options.step_seconds)
        inputs, targets = batch
        return nn.functional.mse_loss(self.layers(inputs), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


seed_everything(0, verbose=False)
torch.set_num_threads(1)
inputs = torch.randn(320, 16, generator=torch.Generator().manual_seed(1))
data = TensorDataset(inputs, inputs[:, :4].prod(dim=1, keepdim=True).sign())
module = Network()
callback = ReprieveCallback(job)
trainer = Trainer(
    max_epochs=options.epochs,
    callbacks=[callback],
    accelerator="auto",
    devices=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(module, ResumableLoader(data, batch_size=8), ckpt_path=callback.resume_from)
torch.save(module.state_dict(), "model.pt")
job.done(trainer.global_step)
print(f"finished at step {trainer.global_step}", flush=True)
