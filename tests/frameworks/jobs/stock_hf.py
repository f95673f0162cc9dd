"""
A training script as the Trainer's documentation has it, written for no host at all.

It saves every few steps, keeps three checkpoints and resumes from its own output folder.
"""

import argparse
import hashlib
import logging
import sys
import warnings
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
parser = argparse.ArgumentParser()
parser.add_argument("--output_dir", type=Path, required=True)
parser.add_argument("--max_steps", type=int, required=True)
options = parser.parse_args()
torch.set_num_threads(1)
torch.manual_seed(7)
config = GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2)
data = [{"input_ids": row, "labels": row} for row in torch.randint(64, (256, 16))]
trainer = Trainer(
    model=GPT2LMHeadModel(config),
    args=TrainingArguments(
        output_dir=str(options.output_dir),
        max_steps=options.max_steps,
        save_steps=20,
        save_total_limit=3,
        per_device_train_batch_size=4,
        seed=7,
        lr_scheduler_type="constant",  # its rate doesn't depend on how many steps are asked for
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
    ),
    train_dataset=data,
)
last = get_last_checkpoint(str(options.output_dir)) if options.output_dir.is_dir() else None
sys.stdout.write(f"resuming from {Path(last).name if last else None}\n")
sys.stdout.flush()
trainer.train(resume_from_checkpoint=last)
digest = hashlib.sha256()
for _name, tensor in sorted(trainer.model.state_dict().items()):
    digest.update(tensor.numpy().tobytes())
sys.stdout.write(f"weights {digest.hexdigest()}\n")
