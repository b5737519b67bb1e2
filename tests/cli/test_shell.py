"""Completion scripts and manual pages, as the shells and groff take them.

Usage: test_shell.py PATH_OF_ROOFLM"""

import fcntl
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

BASH = r"""
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_rooflm
printf '%s\n' "${COMPREPLY[@]}"
"""


# A zsh in a terminal of its own, whose list of matches is what `compadd` is called with. It makes the file `done` after what
# it was given before, however long that takes on a busy machine.
ZSH = r"""
zmodload zsh/zpty
await() { for i in {1..600}; do [[ -f done ]] && break; sleep 0.1; done; rm -f done }
zpty -b z zsh -f -i
zpty -w z "PS1=; fpath=($1:h \$fpath); autoload -Uz compinit; compinit -u -D; source $1 2>/dev/null; compdef _rooflm rooflm"
zpty -w z 'compadd() {
  if [[ ${@[(i)-[OAD]]} -le $# ]]; then builtin compadd "$@"; return; fi
  local -a found; builtin compadd -O found "$@"; print -rl -- "MATCH $^found" >> matches; builtin compadd "$@"
}'
zpty -w z 'bindkey "^I" complete-word; zstyle ":completion:*" verbose no; : > done'
await
zpty -n -w z "$2"$'\t'
zpty -w z $'\C-u: > done'
await
[[ -f matches ]] && sed -n 's/^MATCH //p' matches
zpty -d z
rm -f matches
"""


class Shell(unittest.TestCase):
    binary = ""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def run_binary(self, *arguments, code=0):
        result = subprocess.run([self.binary, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stdout if code == 0 else result.stderr

    def script(self, shell):
        path = self.folder / shell
        path.write_text(self.run_binary("completion", shell))
        return path

    def complete(self, *words):
        """What bash offers for the last of the words."""
        result = subprocess.run(["bash", "-c", BASH, "bash", self.script("bash"), "rooflm", *words], capture_output=True,
                                text=True, timeout=60, check=True, cwd=self.folder)
        self.assertEqual(result.stderr, "")
        return result.stdout.split()

    def commands(self):
        return re.findall(r"^  (\S+(?: \S+)?)  +\S", self.run_binary("--help"), re.MULTILINE)

    def test_help_is_as_wide_as_the_terminal(self):
        for command in [[], *(name.split() for name in self.commands() if name.split()[0] != "data")]:
            result = subprocess.run([self.binary, *command[:1], "--help"], capture_output=True, text=True, timeout=60, check=True,
                                    env={"COLUMNS": "60", "HOME": str(self.folder)})
            long = [line for line in result.stdout.splitlines() if len(line) > 60 and len(line.split()) > 1]
            self.assertEqual(long, [], command)

    def test_messages_are_as_wide_as_the_terminal(self):
        environment = {"HOME": str(self.folder), "TERM": "xterm"}
        words = [self.binary, "study", "nothing"]
        terminal, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 60, 0, 0))
        subprocess.run(words, stdout=subprocess.DEVNULL, stderr=end, timeout=60, check=False, env=environment)
        os.close(end)
        shown = re.sub(r"\x1b\[[0-9;]*m", "", os.read(terminal, 1 << 16).decode()).replace("\r", "").splitlines()
        os.close(terminal)
        self.assertGreater(len(shown), 2)
        self.assertEqual([line for line in shown if len(line) > 60], [])
        for more in ({}, {"COLUMNS": "0"}):
            piped = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env={**environment, **more})
            self.assertEqual(piped.stderr, " ".join(shown) + "\n", "one line where it is no terminal")
        narrow = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env={**environment, "COLUMNS": "60"})
        self.assertEqual(narrow.stderr.splitlines(), shown)

    def test_a_dry_run_of_man_writes_nothing(self):
        out = self.run_binary("man", "-o", self.folder / "pages", "--dry-run")
        self.assertIn("would write manual pages\nwould write\n-o: ", out)
        self.assertFalse((self.folder / "pages").exists())

    def test_bash_completes_commands(self):
        self.assertEqual(self.complete("prof"), ["profile"])
        self.assertEqual(set(self.complete("")), {name.split()[0] for name in self.commands()} | {"--help", "--version"})
        self.assertEqual(self.complete("data", "train"), ["train-tokenizer"])

    def test_bash_completes_options_of_the_command(self):
        self.assertEqual(self.complete("bench", "--rec"), ["--recompute"])
        self.assertEqual(self.complete("data", "prepare", "--val"), ["--val-fraction"])
        self.assertEqual(self.complete("peaks", "--rec"), [])

    def test_bash_completes_values(self):
        self.assertEqual(self.complete("bench", "--engine", ""), ["eager", "fused"])
        self.assertEqual(self.complete("bench", "--engine", "=", "f"), ["fused"])
        self.assertEqual(self.complete("bench", "--engine", "="), ["eager", "fused"])
        self.assertEqual(self.complete("bench", "--dtype", "fp32,b"), ["fp32,bf16"])
        self.assertEqual(self.complete("bench", "--batch", ""), [], "a number has no words")
        (self.folder / "run.rooflm").touch()
        self.assertIn("run.rooflm", self.complete("report", "ru"))
        self.assertIn("run.rooflm", self.complete("bench", "-o", "ru"))

    def test_bash_completes_names_that_are_known(self):
        self.assertIn("llama3-8b", self.complete("plan", "--model", "llama3"))
        self.assertEqual(self.complete("plan", "--device", "h100-sxm-9"), ["h100-sxm-96gb"])
        self.assertIn("roofline", self.complete("report", "a.rooflm", "--view", "overview,roof")[0])
        self.assertIn("verdict", self.complete("compare", "--columns", "verd"))
        self.assertIn("time_share", self.complete("report", "--columns", "time_sh"))
        self.assertIn("attention_parts", self.complete("study", "attention_p"))
        self.assertIn("kineto", self.complete("export", "--format", "kin"))
        self.assertEqual(self.complete("plan", "--what-if", "band"), ["bandwidth=2x"])
        self.assertEqual(self.complete("plan", "--what-if", "bandwidth", "=", "2x,lin"), ["2x,link=2x"])

    def test_bash_completes_the_command_that_ranks_run(self):
        self.assertEqual(set(self.complete("launch", "-n", "2", "--", "")), {"bench", "profile", "train", "eval", "generate", "comm"})
        self.assertEqual(self.complete("launch", "-n", "2", "--", "train", "--resu"), ["--resume"])
        self.assertEqual(self.complete("launch", "-n", "2", "--", "bench", "--engine", "f"), ["fused"])
        self.assertEqual(self.complete("launch", "--rank"), ["--ranks"])

    def completed(self, shell, line):
        """What zsh or fish offers for the end of the line."""
        path = self.script(shell)
        if shell == "fish":
            code, words = f"source {path}; complete -C '{line}'", ["fish", "--no-config", "-c"]
            result = subprocess.run([*words, code], capture_output=True, text=True, timeout=60, check=True, cwd=self.folder,
                                    env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"})
            self.assertEqual(result.stderr, "")
            return [one.split("\t")[0] for one in result.stdout.splitlines()]
        result = subprocess.run(["zsh", "-f", "-c", ZSH, "zsh", path, line], capture_output=True, text=True, timeout=180, check=True,
                                cwd=self.folder, env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin", "TERM": "dumb"})
        return result.stdout.split()

    def test_zsh_and_fish_complete_the_same(self):
        for shell in ("zsh", "fish"):
            with self.subTest(shell=shell):
                if not shutil.which(shell):
                    self.skipTest(f"no {shell} on this machine")
                for line, word in (("rooflm prof", "profile"), ("rooflm bench --engine ", "fused"), ("rooflm plan --device h100-s", "h100-sxm"),
                                   ("rooflm plan --model llama3-8", "llama3-8b"), ("rooflm report --view roofl", "roofline"),
                                   ("rooflm bench --dtype fp32,b", "fp32,bf16"), ("rooflm compare --columns verd", "verdict"),
                                   ("rooflm study attention_p", "attention_parts"), ("rooflm launch -n 2 -- ben", "bench"),
                                   ("rooflm launch -n 2 -- train --resu", "--resume"), ("rooflm launch -n 2 -- bench --engine f", "fused"),
                                   ("rooflm data prep", "prepare"), ("rooflm plan --what-if band", "bandwidth=2x")):
                    found = self.completed(shell, line)
                    expected = word.rsplit(",", 1)[-1] if shell == "zsh" else word
                    self.assertIn(expected, found, line)

    def test_scripts_of_shells_are_scripts(self):
        for shell in ("bash", "zsh", "fish"):
            with self.subTest(shell=shell):
                path = self.script(shell)
                for name in self.commands():
                    self.assertIn(name.split()[-1], path.read_text())
                if shutil.which(shell):
                    subprocess.run([shell, "-n", path], check=True, timeout=60)
        self.assertIn("unknown shell 'bas'; did you mean 'bash'?", self.run_binary("completion", "bas", code=2))

    def test_options_that_docs_name_exist(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        commands = sorted(self.commands(), key=len, reverse=True)
        helps = {}
        checked = 0
        for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
            for line in path.read_text().splitlines():
                for text in re.findall(r"(?:^ {4}|^\$ |^ {4}\$ |`|&& )rooflm ([a-z][^`#|;]*)", line):
                    command = next((name for name in commands if text.startswith(name)), None)
                    self.assertIsNotNone(command, f"{path.name}: rooflm {text}")
                    if command not in helps:
                        helps[command] = set(re.findall(r"--[a-z][a-z0-9-]*", self.run_binary(*command.split(), "--help")))
                    for option in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", text.split(" -- ")[0].split(" && ")[0]):
                        self.assertIn(option, helps[command], f"{path.name}: rooflm {text}")
                        checked += 1
        self.assertGreater(checked, 100)

    def test_every_command_has_a_manual_page(self):
        self.run_binary("man", "-o", self.folder / "man1")
        pages = {path.name for path in (self.folder / "man1").iterdir()}
        self.assertEqual(pages, {"rooflm.1"} | {f"rooflm-{name.replace(' ', '-')}.1" for name in self.commands()})
        for page in sorted(pages):
            text = (self.folder / "man1" / page).read_text()
            self.assertTrue(text.startswith(".TH "), page)
            for section in (".SH NAME", ".SH SYNOPSIS", ".SH EXIT STATUS"):
                self.assertIn(section, text, page)
            if shutil.which("groff"):
                errors = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=text, capture_output=True, text=True,
                                        timeout=60, check=True).stderr
                self.assertEqual(errors, "", page)
        self.assertEqual(self.run_binary("man", "data", "prepare"),
                         (self.folder / "man1" / "rooflm-data-prepare.1").read_text())
        self.assertIn("--overwrite", self.run_binary("man", "-o", self.folder / "man1", code=3))
        self.run_binary("man", "-o", self.folder / "man1", "--overwrite")
        self.assertIn("did you mean 'bench'", self.run_binary("man", "benhc", code=2))


if __name__ == "__main__":
    Shell.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
