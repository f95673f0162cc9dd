"""
Steps over a DataLoader with two workers until it is told to leave; notes each step it makes.

Arguments: start method of the workers, file whose first eight bytes are the newest step.
"""

import os
import sys

import reprieve_job

if __name__ == "__main__":
    job = reprieve_job.connect(keep=None)

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.tensor(float(number))


def main(method: str, newest: int) -> None:
    loader = DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context=method)
    total = torch.zeros(())
    for step, batch in enumerate(loader, start=1):
        total += batch.sum()
        os.pwrite(newest, step.to_bytes(8, "little"), 0)
        job.step(step)
        if job.should_save():
            with job.checkpoint(step) as folder:
                torch.save(total, folder / "total.pt")
        if job.should_exit():
            raise SystemExit(reprieve_job.REQUEUE)


if __name__ == "__main__":
    main(sys.argv[1], os.open(sys.argv[2], os.O_WRONLY))
