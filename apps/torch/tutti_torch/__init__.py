"""Trains a PyTorch model with a communication strategy of tutti's, or of yours."""

from .parallel import DataParallel

__all__ = ["DataParallel"]
