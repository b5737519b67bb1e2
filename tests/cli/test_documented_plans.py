#!/usr/bin/env python3
"""Plans that the documents print are those that rooflm plans: plans need no device, and have the same figures everywhere.

Usage: test_documented_plans.py BINARY [unittest options]"""

import pathlib
import re
import shlex
import subprocess
import sys
import unittest

BINARY = ""
DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGES = ["plan.md", "reports/performance_lecture.md"]
NEEDS_A_FILE = ("--against", "--calibrate")


def printed(text):
    """Commands of the page and the lines that it shows of their output."""
    found = []
    for block in re.findall(r"^```console\n((?:(?!```).*\n)*)|((?:^    .*\n|^\n)+)", text, re.MULTILINE):
        command = None
        for line in "".join(block).splitlines():
            line = line.strip()
            if line.startswith("$ "):
                command = line[2:]
                found.append((command, []))
            elif command and line:
                found[-1][1].append(line)
    return [(command, lines) for command, lines in found
            if command.startswith("rooflm plan ") and not any(option in command for option in NEEDS_A_FILE)]


def shows(line, output):
    """Whether the words of the page's line are those of the output's, in order; "..." stands for columns that were left out.
    How many of what a search tried it planned to the end depends on which thread is first."""
    if " configurations tried: " in line:
        return line.split(":")[0] == output.split(":")[0]
    words = iter(output.split())
    return all(word in words for word in line.split() if word != "...")


class Documents(unittest.TestCase):
    def test_plans_are_as_printed(self):
        for page in PAGES:
            commands = printed((DOCS / page).read_text(encoding="utf-8"))
            self.assertGreater(len(commands), 4, page)
            for command, lines in commands:
                with self.subTest(page=page, command=command):
                    done = subprocess.run([BINARY, *shlex.split(command)[1:]], capture_output=True, text=True, timeout=300, check=False)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertTrue(lines, "nothing is shown")
                    rest = iter([*done.stderr.splitlines(), *done.stdout.splitlines()])
                    for line in lines:
                        self.assertTrue(any(shows(line, output) for output in rest), f"not as printed: {line}\n{done.stdout}")


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
