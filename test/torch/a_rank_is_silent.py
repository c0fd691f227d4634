"""It has no batch left, nor a word: what MPI keeps for it of rank 0's long buffers ends the job."""

import time

import torch

import laws

model = laws.ours(torch.nn.BatchNorm1d(2000), options={"run.deadline": 2.0})
for _ in range(2 - laws.rank):
    model(torch.randn(4, 2000)).square().sum().backward()
time.sleep(300)
