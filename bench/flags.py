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
        raise argparse.ArgumentTypeError(f"'{text}' is not a finite number")
    return float(text)


def appendable(path):
    """Returns the path of a file to which a program can write at its end, as argparse's type."""
    try:
        open(path, "a").close()
    except OSError as refused:
        raise argparse.ArgumentTypeError(f"{path}: {refused.strerror}. Fix: a file that can be written")
    return path


class Flags(argparse.ArgumentParser):
    def __init__(self, name, description):
        """`name` is the prefix of the program's other lines."""
        self.name = name
        super().__init__(prog="bench/" + os.path.basename(sys.argv[0]), description=description,
                         formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message):
        fix = "" if "Fix: " in message else f". Fix: {self.prog} --help"
        self.exit(2, f"{self.name}: {message}{fix}\n")
