"""
The world: the part of AWS that sells GPU hosts, interrupts them and takes them back.

One HTTP server in front of ministack. It answers EC2's fleet and spot calls, SSM Run Command
and one metadata service per host by itself, and passes every other call on, byte for byte. It
runs in a process of its own (``python -m reprieve_cli.local.world``) and takes every process
that it started with it when it ends.
"""
