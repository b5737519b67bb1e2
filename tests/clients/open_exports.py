#!/usr/bin/env python3
"""Opens exports with the programs that they are for: memory_viz, speedscope, promtool, mandoc, html-validate.

usage: open_exports.py CLIENT BINARY SCHEMA MODULES

MODULES is the folder whose node_modules has playwright-core. Exit code 77 says that something needed is not here.
"""

import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))

import foreign_records as made  # noqa: E402

SKIPPED = 77
CHROMIUM = os.environ.get("ROOFLM_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


class Skip(Exception):
    pass


def need(tool, package):
    path = shutil.which(tool)
    if path is None:
        raise Skip(f"{tool} is not installed (Debian package {package})")
    return path


def need_module(name):
    folder = HERE / "node_modules" / name
    if not folder.is_dir():
        raise Skip(f"npm package {name} is not installed in tests/clients (npm ci)")
    return folder


def run(*command, text=True, **others):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=text, check=False, timeout=300, **others)
    if result.returncode != 0:
        sys.exit(f"FAILED with {result.returncode}: {' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


def viewer_of_torch():
    """memory_viz's own script, of a PyTorch that is installed here; "" without any."""
    for python in (sys.executable, "/usr/bin/python3"):
        probe = "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
        found = subprocess.run([python, "-c", probe], capture_output=True, text=True, check=False)
        script = pathlib.Path(found.stdout.strip() or "/nowhere") / "utils" / "viz" / "MemoryViz.js"
        if script.is_file():
            return script
    return ""


class Clients:
    def __init__(self, binary, schema, modules, folder):
        self.binary, self.modules, self.folder = binary, pathlib.Path(modules), folder
        schema = pathlib.Path(schema).read_text(encoding="utf-8")
        self.gpu = made.write_gpu_record(folder / "gpu.rooflm", schema)
        self.cpu = made.write_cpu_record(folder / "cpu.rooflm", schema)

    def export(self, record, form, name):
        path = self.folder / name
        run(self.binary, "export", record, "--format", form, "-o", path)
        return path

    def memory_viz(self):
        node, script = need("node", "nodejs"), viewer_of_torch()
        for record in (self.gpu, self.cpu):
            path = self.export(record, "torch-memory", record.stem + ".pickle")
            lines = run(node, HERE / "memory_viz.mjs", path, script).splitlines()
            found = json.loads(lines[-1])
            trace = pickle.loads(path.read_bytes())["device_traces"][0]
            live = peak = 0
            for entry in trace:
                live += {"alloc": 1, "free_completed": -1}.get(entry["action"], 0) * entry["size"]
                peak = max(peak, live)
            device = found["devices"][0]
            assert device["peak_bytes"] == peak == 5696, (device, peak)
            assert device["allocations"] == 3, device
            assert device["first_us"] > 1795348288 * 10**6, "times since 1970"
            assert "unknown" in found["categories"], found
            print(f"{record.name}: {device['events']} events, at most {peak} bytes ({found['reader']})")

    def speedscope(self):
        node, package = need("node", "nodejs"), need_module("speedscope")
        if CHROMIUM is None:
            raise Skip("chromium is not installed (Debian package chromium)")
        if not (self.modules / "node_modules" / "playwright-core").is_dir():
            raise Skip("playwright-core is not installed: the report page was not built")
        path = self.export(self.gpu, "speedscope", "gpu.speedscope.json")
        folded = run(self.binary, "export", self.gpu, "--format", "folded", "-o", "-")
        total = sum(int(line.rsplit(" ", 1)[1]) for line in folded.splitlines())
        print(run(node, HERE / "speedscope.mjs", package / "dist" / "release" / "index.html", path, total, self.modules, CHROMIUM))

    def prometheus(self):
        tool = need("promtool", "prometheus")
        for record in (self.gpu, self.cpu):
            text = run(self.binary, "export", record, "--format", "openmetrics", "-o", "-")
            result = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
            assert result.returncode == 0, result.stdout + result.stderr
            print(f"{record.name}: promtool reads {sum(not line.startswith('#') for line in text.splitlines())} samples")

    def mandoc(self):
        tool = need("mandoc", "mandoc")
        run(self.binary, "man", "-o", self.folder / "man")
        pages = sorted((self.folder / "man").glob("*.1"))
        result = subprocess.run([tool, "-T", "lint", "-W", "warning", *pages], capture_output=True, text=True, check=False)
        # Pages have no date: the same sources make the same pages.
        found = [line for line in (result.stdout + result.stderr).splitlines() if "missing date" not in line]
        assert pages and not found, "\n".join(found)
        print(f"mandoc warns of nothing in {len(pages)} pages")

    def html_validate(self):
        node, package = need("node", "nodejs"), need_module("html-validate")
        page = self.folder / "page.html"
        result = subprocess.run([self.binary, "report", self.gpu, "--html", page], capture_output=True, text=True, check=False)
        if result.returncode == 5:
            raise Skip("this rooflm has no report page")
        assert result.returncode == 0, result.stderr
        assert b'<meta charset="utf-8"' in page.read_bytes()[:1024], "browsers look for the character set in the first 1,024 bytes"
        pages = [page]
        if CHROMIUM is not None:  # as it stands when its script has run
            shown = self.folder / "shown.html"
            shown.write_text(run(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--dump-dom",
                                 page.as_uri()), encoding="utf-8")
            pages.append(shown)
        run(node, package / "bin" / "html-validate.mjs" if (package / "bin" / "html-validate.mjs").exists()
            else package / "bin" / "html-validate.js", "--config", HERE / "html_validate.json", *pages)
        print(f"html-validate finds nothing in {len(pages)} pages")


def main():
    client, binary, schema, modules = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="rooflm_clients_") as folder:
        try:
            getattr(Clients(binary, schema, modules, pathlib.Path(folder)), client)()
        except Skip as reason:
            print(f"SKIPPED: {reason}")
            return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
