"""Resumes as one rank, whatever saved; with an argument it says that it can."""

import sys

import reprieve_job
from reprieve_job.torch import Ranks

Ranks(reprieve_job.connect(), reshardable=bool(sys.argv[1:]))
