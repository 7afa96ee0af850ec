"""Processes that train together."""

import multiprocessing
import socket

import torch

multiprocessing.set_forkserver_preload(["torch", "fairdro.estimators", "fairdro.networks"])  # which take seconds to import


def _join(rank, function, port, arguments):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    function(rank, 2, *arguments)
    torch.distributed.destroy_process_group()


def on_two_processes(function, *arguments):
    """Call ``function(rank, world, *arguments)`` on two processes of one group."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.start_processes(_join, (function, port, arguments), nprocs=2, start_method="forkserver")
