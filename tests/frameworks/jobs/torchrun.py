"""torchrun itself; the ranks are fresh processes."""

from torch.distributed.run import main

main()
