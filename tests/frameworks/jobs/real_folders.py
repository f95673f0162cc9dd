"""Saves with torch.distributed.checkpoint and Lightning below the first argument, at step 6."""

import logging
import sys
import warnings
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.distributed import checkpoint

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
output = Path(sys.argv[1])
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(4, 64)).sum().backward()
optimizer.step()
state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
checkpoint.save(state, checkpoint_id=output / "dcp" / "step_6")


class Tiny(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: torch.Tensor, _index: int) -> torch.Tensor:
        return self.layer(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


trainer = pl.Trainer(
    max_steps=6,
    accelerator="cpu",
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[ModelCheckpoint(output / "lightning", every_n_train_steps=3, save_last=True)],
)
trainer.fit(Tiny(), torch.utils.data.DataLoader(torch.ones(64, 4), batch_size=4))
