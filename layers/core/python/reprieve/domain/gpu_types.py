"""
EC2 hosts with NVIDIA GPUs and x86_64, written by ``python -m infra.gpu_types``: don't edit.

Facts from moto 5.2.5 (bundled instance types), on-demand prices of us-east-1, 2026-07-20, from
aws/karpenter-provider-aws pkg/providers/pricing at 1d927085; both Apache-2.0. The compute
capability is our own column. ``SOURCES.md`` beside the data file says more.
"""

from __future__ import annotations

Row = tuple[str, str, int, int, int, int, int, int, bool, float | None]

# type, GPU, GPUs, MiB of each, compute capability x 10, vCPUs, GiB, NVMe GB, Spot, $/h on demand
ROWS: tuple[Row, ...] = (
    ("g4dn.12xlarge", "T4", 4, 16_384, 75, 48, 192, 900, True, 3.912),
    ("g4dn.16xlarge", "T4", 1, 16_384, 75, 64, 256, 900, True, 4.352),
    ("g4dn.2xlarge", "T4", 1, 16_384, 75, 8, 32, 225, True, 0.752),
    ("g4dn.4xlarge", "T4", 1, 16_384, 75, 16, 64, 225, True, 1.204),
    ("g4dn.8xlarge", "T4", 1, 16_384, 75, 32, 128, 900, True, 2.176),
    ("g4dn.metal", "T4", 8, 16_384, 75, 96, 384, 1_800, True, 7.824),
    ("g4dn.xlarge", "T4", 1, 16_384, 75, 4, 16, 125, True, 0.526),
    ("g5.12xlarge", "A10G", 4, 22_888, 86, 48, 192, 3_800, True, 5.672),
    ("g5.16xlarge", "A10G", 1, 22_888, 86, 64, 256, 1_900, True, 4.096),
    ("g5.24xlarge", "A10G", 4, 22_888, 86, 96, 384, 3_800, True, 8.144),
    ("g5.2xlarge", "A10G", 1, 22_888, 86, 8, 32, 450, True, 1.212),
    ("g5.48xlarge", "A10G", 8, 22_888, 86, 192, 768, 7_600, True, 16.288),
    ("g5.4xlarge", "A10G", 1, 22_888, 86, 16, 64, 600, True, 1.624),
    ("g5.8xlarge", "A10G", 1, 22_888, 86, 32, 128, 900, True, 2.448),
    ("g5.xlarge", "A10G", 1, 22_888, 86, 4, 16, 250, True, 1.006),
    ("g6.12xlarge", "L4", 4, 22_888, 89, 48, 192, 3_760, True, 4.6016),
    ("g6.16xlarge", "L4", 1, 22_888, 89, 64, 256, 1_880, True, 3.3968),
    ("g6.24xlarge", "L4", 4, 22_888, 89, 96, 384, 3_760, True, 6.6752),
    ("g6.2xlarge", "L4", 1, 22_888, 89, 8, 32, 450, True, 0.9776),
    ("g6.48xlarge", "L4", 8, 22_888, 89, 192, 768, 7_520, True, 13.3504),
    ("g6.4xlarge", "L4", 1, 22_888, 89, 16, 64, 600, True, 1.3232),
    ("g6.8xlarge", "L4", 1, 22_888, 89, 32, 128, 900, True, 2.0144),
    ("g6.xlarge", "L4", 1, 22_888, 89, 4, 16, 250, True, 0.8048),
    ("g6e.12xlarge", "L40S", 4, 45_776, 89, 48, 384, 3_800, True, 10.49264),
    ("g6e.16xlarge", "L40S", 1, 45_776, 89, 64, 512, 1_900, True, 7.57719),
    ("g6e.24xlarge", "L40S", 4, 45_776, 89, 96, 768, 3_800, True, 15.06559),
    ("g6e.2xlarge", "L40S", 1, 45_776, 89, 8, 64, 450, True, 2.24208),
    ("g6e.48xlarge", "L40S", 8, 45_776, 89, 192, 1_536, 7_600, True, 30.13118),
    ("g6e.4xlarge", "L40S", 1, 45_776, 89, 16, 128, 600, True, 3.00424),
    ("g6e.8xlarge", "L40S", 1, 45_776, 89, 32, 256, 900, True, 4.52856),
    ("g6e.xlarge", "L40S", 1, 45_776, 89, 4, 32, 250, True, 1.861),
    ("g7.12xlarge", "RTX PRO 4500", 2, 32_768, 120, 48, 192, 1_900, True, 7.12832),
    ("g7.24xlarge", "RTX PRO 4500", 4, 32_768, 120, 96, 384, 3_800, True, 14.25664),
    ("g7.2xlarge", "RTX PRO 4500", 1, 32_768, 120, 8, 32, 440, True, 2.52),
    ("g7.48xlarge", "RTX PRO 4500", 8, 32_768, 120, 192, 768, 7_600, True, 28.51328),
    ("g7.4xlarge", "RTX PRO 4500", 1, 32_768, 120, 16, 64, 875, True, 3.04208),
    ("g7.8xlarge", "RTX PRO 4500", 1, 32_768, 120, 32, 128, 930, True, 4.08624),
    ("g7e.12xlarge", "RTX PRO Server 6000", 2, 98_304, 120, 48, 512, 3_800, True, 8.28608),
    ("g7e.24xlarge", "RTX PRO Server 6000", 4, 98_304, 120, 96, 1_024, 7_600, True, 16.57216),
    ("g7e.2xlarge", "RTX PRO Server 6000", 1, 98_304, 120, 8, 64, 1_900, True, 3.36312),
    ("g7e.48xlarge", "RTX PRO Server 6000", 8, 98_304, 120, 192, 2_048, 15_200, True, 33.14432),
    ("g7e.4xlarge", "RTX PRO Server 6000", 1, 98_304, 120, 16, 128, 1_900, True, 3.99816),
    ("g7e.8xlarge", "RTX PRO Server 6000", 1, 98_304, 120, 32, 256, 1_900, True, 5.26824),
    ("gr6.4xlarge", "L4", 1, 22_888, 89, 16, 128, 600, True, 1.5392),
    ("gr6.8xlarge", "L4", 1, 22_888, 89, 32, 256, 900, True, 2.4464),
    ("p3dn.24xlarge", "V100", 8, 32_768, 70, 96, 768, 1_800, True, 31.212),
    ("p4d.24xlarge", "A100", 8, 40_960, 80, 96, 1_152, 8_000, True, 21.957642),
    ("p4de.24xlarge", "A100", 8, 81_920, 80, 96, 1_152, 8_000, True, 27.44705),
    ("p5.48xlarge", "H100", 8, 81_920, 90, 192, 2_048, 30_400, True, 55.04),
    ("p5.4xlarge", "H100", 1, 81_920, 90, 16, 256, 3_800, True, 6.88),
    ("p5e.48xlarge", "H200", 8, 144_384, 90, 192, 2_048, 30_400, True, None),
    ("p5en.48xlarge", "H200", 8, 144_384, 90, 192, 2_048, 30_400, True, 63.296),
    ("p6-b200.48xlarge", "B200", 8, 183_359, 100, 192, 2_048, 30_400, True, 113.9328),
    ("p6-b300.48xlarge", "B300", 8, 275_040, 103, 192, 4_096, 30_400, True, 142.416),
)
