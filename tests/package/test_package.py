"""What `cmake --install`, `cpack` and scripts/bundle deliver: it works wherever it lies, and goes without a trace.

Usage: test_package.py CMAKE CPACK BUNDLE BUILD_FOLDER"""

import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

FILES = ("bin/rooflm", "libexec/rooflm/librooflm_inject.so", "share/man/man1/rooflm.1", "share/man/man1/rooflm-data-prepare.1",
         "share/bash-completion/completions/rooflm", "share/zsh/vendor-completions/_rooflm",
         "share/fish/vendor_completions.d/rooflm.fish", "lib/python3/dist-packages/rooflm/__init__.py", "lib/python3/dist-packages/rooflm/errors.py",
         "lib/python3/dist-packages/rooflm/interchange.py",
         "share/doc/rooflm/copyright", "share/doc/rooflm/docs/design.md", "share/doc/rooflm/docs/images/roofline.png")
LIBRARY = ("lib/librooflm.a", "lib/cmake/rooflm/rooflm-config.cmake", "include/rooflm/engines/engine.h",
           "include/rooflm/backends/cpu/cpu_backend.h", "share/doc/rooflm/examples/outside/CMakeLists.txt",
           "share/doc/rooflm/examples/price_a_step.cpp")


class Package(unittest.TestCase):
    cmake = cpack = bundle = build = ""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def call(self, *command):
        result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=500, check=False,
                                cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def check_cuda(self, root):
        """Code for GPUs is in files of its own, which the binary finds, and names where they are not as they should be."""
        built = {path.name for path in pathlib.Path(self.build).glob("librooflm_cuda_*.so")}
        folder, binary = root / "libexec" / "rooflm", root / "bin" / "rooflm"
        self.assertEqual({path.name for path in folder.glob("librooflm_cuda_*.so")}, built)
        self.assertLess(binary.stat().st_size, 30e6)
        self.assertNotIn(b".nv_fatbin\0", binary.read_bytes(), "code for GPUs in the binary")
        for name in built:
            kernels, whole = folder / name, (folder / name).read_bytes()
            self.assertIn(b".nv_fatbin\0", whole)
            family = name.removeprefix("librooflm_cuda_").removesuffix(".so")
            self.assertNotIn(f"{family} not available", self.call(binary, "info"))
            kernels.write_bytes(whole[:-1])
            self.assertIn(f"{family} not available: {kernels} is damaged: it has {len(whole) - 1} bytes of {len(whole)}",
                          self.call(binary, "info", "--wide"))
            kernels.unlink()
            self.assertIn(f"{family} not available: {name} is not here: it belongs", self.call(binary, "info", "--wide"))
            kernels.write_bytes(whole)

    def check_tree(self, root):
        for name in FILES:
            self.assertTrue((root / name).is_file(), name)
        binary = root / "bin" / "rooflm"
        self.assertIn("rooflm ", self.call(binary, "--version"))
        rows = self.call(binary, "bench", "--model", "tiny", "--layers", 1, "--d-model", 32, "--heads", 2, "--vocab", 50,
                         "--batch", 1, "--seq", 8, "--steps", 2, "--no-peak", "--format", "csv")
        self.assertIn("success", rows)
        package = root / "lib/python3/dist-packages"
        was_built = bool(list(pathlib.Path(self.build).glob("python/rooflm/_native*")))
        self.assertEqual(bool(list(package.glob("rooflm/_native*.so"))), was_built)
        asks = "rooflm.price(model='tiny')['totals']['flop']" if was_built else "len(rooflm.plan(model='tiny', device='h100-sxm'))"
        priced = self.call(sys.executable, "-c", f"import sys; sys.path.insert(0, '{package}'); import rooflm; "
                           f"assert rooflm.binary() == sys.argv[1]; print({asks} > 0)", binary)
        self.assertEqual(priced.strip(), "True", "the module finds the binary beside it")
        self.assertIn("context", self.call(binary, "study", "list"), "studies travel inside the binary")
        self.check_cuda(root)

    def check_links(self, root):
        """What an installed page shows or links to is installed, too."""
        pages = sorted((root / "share/doc/rooflm").rglob("*.md"))
        self.assertGreater(len(pages), 20)
        for page in pages:
            for target in re.findall(r"\]\(([\w./-]+\.\w+)(?:#[^)]*)?\)", page.read_text()):  # no address: those have a colon
                self.assertTrue((page.parent / target).exists(), f"{page.relative_to(root)} links to {target}")

    def check_headers(self, root):
        """Whatever a public header includes of rooflm is installed, too."""
        headers = root / "include" / "rooflm"
        for header in headers.rglob("*.h"):
            for name in re.findall(r'^#include "([^"]+)"', header.read_text(), re.MULTILINE):
                self.assertTrue((headers / name).is_file(), f"{header.relative_to(headers)} includes {name}")

    def check_library(self, root):
        """A project outside of the tree builds the examples against what is installed, and they run."""
        project = self.folder / "project"
        shutil.copytree(root / "share/doc/rooflm/examples", project)
        self.call(self.cmake, "-S", project / "outside", "-B", project / "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                  f"-DCMAKE_PREFIX_PATH={root}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror -Wno-error=maybe-uninitialized")
        self.call(self.cmake, "--build", project / "build")
        self.assertIn(str(root), (project / "build" / "CMakeCache.txt").read_text())
        self.assertIn("gpt2 in bf16: 192 GFLOP", self.call(project / "build" / "price_a_step"))
        self.assertIn("step 50  loss", self.call(project / "build" / "train_by_hand"))

    def test_what_is_installed_may_be_moved(self):
        self.call(self.cmake, "--install", self.build, "--prefix", self.folder / "there")
        (self.folder / "there").rename(self.folder / "moved")
        self.check_tree(self.folder / "moved")
        self.check_headers(self.folder / "moved")
        self.check_links(self.folder / "moved")
        self.check_library(self.folder / "moved")

    def test_archive_wheel_and_package_bring_their_libraries(self):
        """They run without the distribution's packages; a wheel's files are those that it lists, and work in an environment."""
        self.call(self.bundle, self.build, self.folder / "made")
        (archive,), (wheel,) = (self.folder / "made").glob("*.tar.gz"), (self.folder / "made").glob("*.whl")
        with tarfile.open(archive) as packed:
            self.assertTrue(all(member.isreg() and member.uid == 0 for member in packed.getmembers()))
            packed.extractall(self.folder / "out", filter="data") if hasattr(tarfile, "data_filter") else packed.extractall(
                self.folder / "out")
        (root,) = (self.folder / "out").iterdir()
        self.check_tree(root)
        for name in LIBRARY:
            self.assertEqual(len(list(root.rglob(name))), 1, name)
        libraries = {path.name.split(".so")[0] for path in (root / "lib/rooflm").iterdir()}
        self.assertLessEqual({"libdnnl", "libfmt", "libgomp", "libsqlite3", "libnettle"}, libraries)
        self.assertFalse({"libc", "libm", "libstdc++", "libgcc_s"} & libraries)
        self.assertTrue((root / "share/doc/rooflm/licenses").is_dir())
        if shutil.which("dpkg-deb"):
            self.check_package("rooflm", ("libc6 (>= 2.", "libstdc++6", "libgcc-s1"), FILES)
            libraries = self.folder / "rooflm/usr/lib/rooflm"
            self.assertEqual(sorted(path.name for path in libraries.iterdir()), sorted(path.name for path in (root / "lib/rooflm").iterdir()))
            self.assertIn(f"{self.folder}/rooflm/usr/bin/../lib/rooflm/libfmt.so", self.call("ldd", self.folder / "rooflm/usr/bin/rooflm"))
            self.assertIn("rooflm ", self.call(self.folder / "rooflm/usr/bin/rooflm", "--version"))
        self.check_wheel(wheel, root)

    def check_wheel(self, wheel, root):
        self.assertRegex(wheel.name, r"^rooflm-\d+\.\d+\.\d+-py3-none-manylinux_2_\d+_x86_64\.whl$")
        environment = self.folder / "environment"
        if subprocess.run([sys.executable, "-m", "venv", environment], capture_output=True, check=False).returncode != 0:
            self.skipTest("this Python makes no environments")
        python = environment / "bin" / "python"
        self.call(python, "-m", "pip", "install", "--no-index", "--quiet", wheel)  # checks RECORD
        self.assertEqual(self.call(environment / "bin" / "rooflm", "--version"), self.call(root / "bin" / "rooflm", "--version"))
        self.assertEqual(self.call(python, "-c", "import rooflm; print(rooflm.binary())").strip(), str(environment / "bin" / "rooflm"))
        plan = "import rooflm; print(rooflm.plan(model='tiny', device='h100-sxm')[0]['step_s'] > 0)"
        self.assertEqual(self.call(python, "-c", plan).strip(), "True")
        self.call(python, "-m", "pip", "uninstall", "--quiet", "--yes", "rooflm")
        self.assertEqual([path for path in environment.rglob("*rooflm*") if path.is_file()], [], "removed, but for empty folders")

    @unittest.skipUnless(shutil.which("dpkg-deb"), "no dpkg on this machine")
    def test_debian_package_of_the_library(self):
        self.call(self.cpack, "--config", pathlib.Path(self.build) / "CPackConfig.cmake", "-G", "DEB", "-B", self.folder / "made")
        self.check_package("rooflm-dev", ("libfmt-dev", "libdnnl-dev", "libsqlite3-dev", "nettle-dev"), LIBRARY)

    def check_package(self, name, libraries, files):
        (package,) = (self.folder / "made").glob(f"{name}_*.deb")
        needs = self.call("dpkg-deb", "--field", package, "Depends")
        for library in libraries:
            self.assertIn(library, needs)
        root = self.folder / name
        self.call("dpkg-deb", "--extract", package, root)
        for file in files:
            self.assertTrue((root / "usr" / file).is_file(), file)
        self.assertFalse({*FILES, *LIBRARY}.difference(files) & {str(path.relative_to(root / "usr")) for path in root.rglob("*")})
        # Its files are in /usr alone, and no script of its own runs: removing it leaves nothing.
        self.assertEqual([path.name for path in root.iterdir()], ["usr"])
        self.call("dpkg-deb", "--control", package, self.folder / f"{name}-control")
        self.assertEqual({path.name for path in (self.folder / f"{name}-control").iterdir()}, {"control", "md5sums"})


if __name__ == "__main__":
    Package.cmake, Package.cpack, Package.bundle = sys.argv[1:4]
    Package.build = str(pathlib.Path(sys.argv[4]).resolve())
    del sys.argv[1:5]
    unittest.main()
