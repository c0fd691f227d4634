"""The project's source files, as every lint reads them."""

import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]


def listed(*patterns: str) -> list[str]:
    """Returns the paths, in order, that match one of `patterns`, or all without patterns. They are
    the files that git tracks or would track, or, in a tree without git, every file. Files in build/
    are left out, and so is what programs have printed to bench/results/, which is no prose."""
    try:
        listing = subprocess.run(
            ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            check=True, capture_output=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        listing = [str(path.relative_to(root)) for path in root.rglob("*")]
    found = sorted({path for path in listing
                    if path and not path.startswith("build/") and (root / path).is_file()
                    and (not path.startswith("bench/results/") or path.endswith(".md"))})
    return [path for path in found
            if not patterns or any(pathlib.PurePath(path).match(each) for each in patterns)]


def read(*patterns: str) -> dict[str, str]:
    """Returns the text of each listed file, by its path. Files that are not text are left out."""
    texts = {}
    for path in listed(*patterns):
        try:
            texts[path] = (root / path).read_text()
        except (UnicodeDecodeError, FileNotFoundError):
            pass
    return texts


code = ("*.hpp", "*.cpp", "*.cu", "*.cuh", "*.hpp.in", "*.cpp.in")


def without_comments(text: str) -> str:
    """Returns the text with comments and literals blanked, so that offsets and line numbers
    stay."""
    quiet = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<end>[^(\s]*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'", re.S)
    return quiet.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def finish(faults: list[str]) -> None:
    """Prints the faults, one a line, and ends the program, with status 1 if there are any."""
    print("\n".join(faults) if faults else "clean")
    sys.exit(1 if faults else 0)


def expect(faults: list[str], sentence: str, what: str) -> None:
    """Ends a self-test with an error unless there is exactly one fault, which contains `sentence`,
    or no fault if `sentence` is empty. `what` names the planted mistake."""
    if sentence and not (len(faults) == 1 and sentence in faults[0]):
        sys.exit(f"self-test: {what}: wanted one fault with '{sentence}', got {faults}")
    if not sentence and faults:
        sys.exit(f"self-test: {what}: wanted none, got {faults}")
