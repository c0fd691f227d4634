"""Compiles a strategy that this folder's tests train with, so that none of them waits for it."""

import sys

import laws
from tutti_torch.building import compiled

strategy = {"dense": {"strategy": laws.dense, "header": None}, "remembering": laws.remembering,
            "late": laws.late,
            "served": {"strategy": laws.served, "header": None},
            "crossing": {"strategy": laws.crossing, "header": None, "optimizer": "optimizer::sgd"},
            "momenta": {"strategy": laws.momenta, "header": None,
                        "optimizer": "optimizer::one_bit_adam"}}
compiled(**strategy[sys.argv[1]], place=laws.place)
