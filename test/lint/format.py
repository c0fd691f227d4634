#!/usr/bin/env python3
"""Checks that sources are formatted as clang-format 14 formats them. Other versions format them
differently: without version 14 the check is skipped, with exit status 77."""

import shutil
import subprocess
import sys

import sources

formatter = shutil.which("clang-format-14") or shutil.which("clang-format")
if not formatter or " 14." not in subprocess.run([formatter, "--version"], capture_output=True,
                                                 text=True).stdout:
    print("clang-format 14 is not here")
    sys.exit(77)
ran = subprocess.run([formatter, "--dry-run", "-Werror", "--ferror-limit=1",
                      *sources.listed("*.hpp", "*.cpp", "*.cu", "*.cuh")],
                     cwd=sources.root, capture_output=True, text=True)
sources.finish([line for line in ran.stderr.splitlines() if "error:" in line])
