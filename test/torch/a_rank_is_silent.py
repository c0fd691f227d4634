"""Rank 1 has no batch left, and neither sends nor polls, but does not end. MPI keeps rank 0's
buffers, a long message, until rank 1 polls, so that rank 0 must end the job."""

import time

import torch

import laws

model = laws.ours(torch.nn.BatchNorm1d(2000), options={"run.deadline": 2.0})
for _ in range(2 - laws.rank):
    model(torch.randn(4, 2000)).square().sum().backward()
time.sleep(300)
