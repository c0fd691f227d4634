"""Trains a PyTorch model with a communication strategy of tutti's, or of yours."""

from .optimizer import OneBitAdam
from .parallel import DataParallel

__all__ = ["DataParallel", "OneBitAdam"]
