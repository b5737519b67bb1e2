"""scripts/release in a scratch repository, whose `make check` and `make package` only note that they ran.

Usage: test_release.py SOURCE_FOLDER"""

import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

MAKEFILE = """check:
\t@echo checked >> ran
package:
\t@test ! -e broken
\t@mkdir -p build/package && grep -o 'VERSION [0-9.]*' CMakeLists.txt > build/package/rooflm.deb
"""
CHANGELOG = """# Changelog

## [Unreleased]

### Added
- Something # with a hash.

## [0.0.9] - 2026-01-01
- Of old.
"""


class Release(unittest.TestCase):
    source = pathlib.Path()

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "scripts").mkdir()
        shutil.copy(self.source / "scripts" / "release", self.folder / "scripts")
        shutil.copy(self.source / "CMakeLists.txt", self.folder)
        (self.folder / "Makefile").write_text(MAKEFILE)
        (self.folder / "CHANGELOG.md").write_text(CHANGELOG)
        (self.folder / ".gitignore").write_text("build\nran\nbroken\n")
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.name", "A tester")
        self.git("config", "user.email", "tester@localhost")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "All")

    def git(self, *arguments):
        return subprocess.run(["git", *arguments], cwd=self.folder, check=True, capture_output=True, text=True).stdout

    def release(self, *arguments, code=0):
        made = subprocess.run([sys.executable, "scripts/release", *arguments], cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(made.returncode, code, made.stdout + made.stderr)
        return made

    def test_makes_a_release(self):
        out = self.release("7.8.9").stdout
        self.assertEqual((self.folder / "ran").read_text(), "checked\n")
        self.assertIn("project(rooflm VERSION 7.8.9 ", (self.folder / "CMakeLists.txt").read_text())
        self.assertRegex((self.folder / "CHANGELOG.md").read_text(), r"## \[Unreleased\]\n\n## \[7.8.9\] - \d{4}-\d\d-\d\d\n\n### Added\n- Something")
        self.assertIn("- Something # with a hash.", self.git("tag", "--list", "v7.8.9", "--format=%(contents)"))
        self.assertNotIn("Of old", self.git("tag", "--list", "v7.8.9", "--format=%(contents)"))
        self.assertEqual(self.git("status", "--porcelain"), "")
        package = (self.folder / "build" / "package" / "rooflm.deb").read_bytes()
        self.assertIn(b"7.8.9", package)
        self.assertIn(hashlib.sha256(package).hexdigest() + "  rooflm.deb", out)
        self.assertIn("nothing that it is unreleased", self.release("8.0.0", code=2).stderr)

    def test_what_cannot_be_released(self):
        self.assertIn("is no version", self.release("7.8", code=2).stderr)
        self.assertIn("is older than", self.release("0.0.1", code=2).stderr)
        self.git("tag", "v7.8.9")
        self.assertIn("is a tag already", self.release("7.8.9", code=2).stderr)
        (self.folder / "Makefile").write_text(MAKEFILE + "# more\n")
        self.assertIn("not committed", self.release("7.9.0", code=2).stderr)
        self.assertFalse((self.folder / "ran").exists(), "nothing was begun")

    def test_a_package_that_fails_leaves_what_was_there(self):
        (self.folder / "broken").touch()
        self.release("7.8.9", code=1)
        self.assertEqual(self.git("status", "--porcelain") + self.git("tag"), "")

    def test_a_dry_run_changes_nothing(self):
        self.assertIn("- Something", self.release("7.8.9", "--dry-run").stdout)
        self.assertEqual(self.git("status", "--porcelain") + self.git("tag"), "")
        self.assertFalse((self.folder / "ran").exists())


if __name__ == "__main__":
    Release.source = pathlib.Path(sys.argv.pop(1))
    unittest.main()
