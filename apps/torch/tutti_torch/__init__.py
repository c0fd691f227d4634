"""Trains a PyTorch model with a communication strategy of tutti's or of the user's."""


def _expect_torch() -> None:
    fix = "Fix: apt-get install python3-torch, or pip install torch"
    try:
        from torch import __version__ as version
    except ModuleNotFoundError as reason:
        if reason.name != "torch":
            raise
        raise ImportError(f"tutti_torch trains models of torch, which this Python lacks. {fix}",
                          name="torch") from None
    if tuple(map(int, version.split(".")[:2])) < (1, 13):
        raise ImportError(f"tutti_torch needs torch 1.13 or newer, and this one is {version}. {fix}",
                          name="torch")


_expect_torch()

from .optimizer import OneBitAdam  # noqa: E402
from .parallel import DataParallel  # noqa: E402

__all__ = ["DataParallel", "OneBitAdam"]
