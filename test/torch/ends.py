"""Tests that a rank which waits for the others, when MPI begins and when a model or MPI ends, lets
Python's other threads run, and that the end of a forked process is not the end of its parent."""

import os
import sys
import threading
import time

import torch

import tutti_torch
from tutti_torch.building import compiled

rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
limit = 30.0


def speak_meanwhile(name):
    """Lets rank 0 go on at once. A thread of rank 0 writes a file half a second later, and rank 1
    goes on when the file is there."""
    said = os.path.join(os.environ["TUTTI_TEST_SCRATCH"], name)
    if rank == 0:
        def speak():
            time.sleep(0.5)
            open(said, "w").close()
        threading.Thread(target=speak, daemon=True).start()
        return
    until = time.monotonic() + limit
    while not os.path.exists(said):
        if time.monotonic() > until:
            print(f"no thread of rank 0 has run: {name}", flush=True)
            os._exit(1)
        time.sleep(0.01)


compiled("strategies::Horovod")
speak_meanwhile("while MPI begins")
model = tutti_torch.DataParallel(torch.nn.Linear(3, 2), "strategies::Horovod")
model(torch.ones(1, 3)).sum().backward()
for way in ("return", "exit", "raise"):
    child = os.fork()
    if child == 0:
        if way == "return":
            del model
            os._exit(0)
        if way == "exit":
            sys.exit(0)
        raise ValueError("only the child fails")
    until = time.monotonic() + limit
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            print(f"a child that ends by {way} does not end", flush=True)
            os._exit(1)
        time.sleep(0.01)
    model(torch.ones(1, 3)).sum().backward()
speak_meanwhile("while a model ends")
model._close()
speak_meanwhile("while MPI ends")
