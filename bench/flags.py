"""Parses the flags of this folder's programs. An error is one line, which says where to look."""

import argparse
import math
import os
import sys


def counted(text):
    """Converts a number of 1 or more, as argparse's type."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not 1 or more")
    return int(text)


def finite(text):
    """Converts a finite number, as argparse's type."""
    if not math.isfinite(float(text)):
        raise argparse.ArgumentTypeError(f"'{text}' is no finite number")
    return float(text)


class Flags(argparse.ArgumentParser):
    def __init__(self, name, description):
        """`name` is the prefix of the program's other lines."""
        self.name = name
        super().__init__(prog="bench/" + os.path.basename(sys.argv[0]), description=description,
                         formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message):
        self.exit(2, f"{self.name}: {message}. Fix: {self.prog} --help\n")
