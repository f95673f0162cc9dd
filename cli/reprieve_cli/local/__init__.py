"""
The embedded cloud: AWS for one machine, without an account and without Docker.

``cloud`` starts and stops it, ``control`` talks to it, ``localize`` and ``deploy`` put the
synthesised stack into it. ministack carries the control plane; ``world`` carries what sells
and takes back GPU hosts. Product code never knows: only SDK environment variables differ.
"""
