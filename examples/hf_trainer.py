"""
A tiny GPT-2 trained with Hugging Face's Trainer, made interruptible by four lines (marked <-).

    python hf_trainer.py --steps 60 --accumulate 4
"""

from __future__ import annotations

import argparse
import time

import reprieve_job

parser = argparse.ArgumentParser(description="Train a tiny GPT-2 on made-up text.")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--accumulate", type=int, default=1, help="gradient accumulation steps")
parser.add_argument("--step-seconds", type=float, default=0.0, help="least duration of a forward")
parser.add_argument("--output-dir", default="output")
options = parser.parse_args()

# Before `import transformers`, which takes many seconds: the host may ask from here on.
job = reprieve_job.connect(every=600, framework="huggingface")  # <-

import torch  # noqa: E402
from transformers import (  # noqa: E402
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    set_seed,
)

from reprieve_job.huggingface import ReprieveCallback  # noqa: E402  <-


class SlowGPT2(GPT2LMHeadModel):
    """Dropout stays on: a resumed run must draw the same random numbers."""

    def forward(self, input_ids: torch.Tensor, **rest: object) -> object:
        time.sleep(options.step_seconds)
        return super().forward(input_ids, **rest)


set_seed(0)
torch.set_num_threads(1)
tokens = torch.randint(64, (512, 16), generator=torch.Generator().manual_seed(1))
texts = [{"input_ids": row, "labels": row} for row in tokens]
sizes = {"vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2}
complete = job.resume_step == options.steps
if complete:
    model = SlowGPT2.from_pretrained(job.resume_dir)
else:
    model = SlowGPT2(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
callback = ReprieveCallback(job)
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir=options.output_dir,
        max_steps=options.steps,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=options.accumulate,
        learning_rate=1e-3,
        save_steps=25,
        save_total_limit=2,
        report_to=[],
        label_names=["labels"],
        remove_unused_columns=False,  # it goes by the names of forward's arguments
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    ),
    train_dataset=texts,
    callbacks=[callback],
)
if not complete:  # a Trainer that resumes from its last step takes one more
    trainer.train(resume_from_checkpoint=callback.resume_from)  # <-
trainer.save_model("final")
job.done(options.steps)  # <-
print(f"finished at step {options.steps}", flush=True)
