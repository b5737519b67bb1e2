"""scripts/op_times --into: points of a record's ops join the curves of a device that was measured; all else stays as it is.

The record is made here."""
import json
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "op_times"
TABLES = ROOT / "data" / "op_times.json"
SCHEMA = (ROOT / "src" / "record" / "schema.sql").read_text(encoding="utf-8")
COLUMNS = "run, op, kind, class, kernel, variant, lane, name, phase, scope, dtype, shapes, matmul_flop, elementwise_flop, bytes_read, " \
          "bytes_written, launches"


def make_record(path):
    """Two norms of 777,000 bytes, of 3 and 5 us, and a GEMM; each is seen three times."""
    database = sqlite3.connect(path)
    database.executescript(SCHEMA)
    database.execute("INSERT INTO meta (key, value) VALUES ('command', 'rooflm profile --seq 24 -o /home/me/tiny.rooflm --data=/d/text'), ('started_utc', '2026-01-01'), ('revision', 'x')")
    database.execute("INSERT INTO run (id, label, status) VALUES (1, 'made', 'success')")
    for op, kind, moved, us in ((0, "add_layernorm", 777_000, 3), (1, "add_layernorm", 777_000, 5), (2, "matmul", 5000, 9)):
        database.execute(f"INSERT INTO op ({COLUMNS}) VALUES ({', '.join('?' * 17)})",
                         (1, op, kind, kind, kind, "24x8x8 bf16", "compute", "y", "forward", "h.0", "bf16", "", 0, 0, moved // 2, moved - moved // 2, 1))
        for sample in range(3):
            database.execute("INSERT INTO event (run, step, op, start_ns, device_ns) VALUES (1, ?, ?, 0, ?)",
                             (sample, op, 1000 * us + sample))
    database.commit()
    database.close()


class Into(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.record = cls.folder / "tiny.rooflm"
        make_record(cls.record)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def setUp(self):
        self.tables = self.folder / f"{self.id()}.json"
        shutil.copy(TABLES, self.tables)

    def join(self, device="h100-sxm", *options):
        return subprocess.run([sys.executable, SCRIPT, "--device", device, "--into", self.tables, *options, self.record],
                              capture_output=True, text=True, check=False)

    def entry(self, device="h100-sxm"):
        return next(entry for entry in json.loads(self.tables.read_text())["devices"] if entry["device"] == device)

    def test_new_sizes_join_the_curves_and_the_rest_stays(self):
        before = self.entry()
        done = self.join()
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        after = self.entry()
        self.assertEqual(len(after["sources"]), len(before["sources"]) + 1)
        self.assertEqual(after["sources"][-1]["command"], "rooflm profile --seq 24 -o tiny.rooflm --data=text")
        self.assertEqual({key: value for key, value in after.items() if key not in ("moved", "sources")},
                         {key: value for key, value in before.items() if key not in ("moved", "sources")})
        added = {kind: [point for point in points if point not in before["moved"].get(kind, [])] for kind, points in after["moved"].items()}
        self.assertEqual({kind: points for kind, points in added.items() if points}, {"add_layernorm": [[777000, 4.001e-06]]})
        for kind, points in after["moved"].items():
            self.assertEqual(points, sorted(points), kind)
            self.assertTrue(all(point in points for point in before["moved"].get(kind, [])), kind)
            self.assertTrue(all(seconds > 0 for _, seconds in points), kind)
        # A second time there is nothing new.
        text = self.tables.read_text()
        self.assertEqual(self.join().returncode, 0)
        self.assertEqual(self.tables.read_text(), text)

    def test_renewed_kinds_have_points_of_their_own_and_the_old_ones_stay_for_others(self):
        before = self.entry()
        self.assertEqual(self.join("h100-sxm", "--renew", "add_layernorm").returncode, 0)
        after = self.entry()
        self.assertEqual(after["moved"], before["moved"])
        known = [p for p in before["own_moved"]["add_layernorm"] if not 0.98 < p[0] / 777_000 < 1.02]
        self.assertEqual(after["own_moved"]["add_layernorm"], sorted([*known, [777000, 4.001e-06]]))
        self.assertEqual({k: v for k, v in after["own_moved"].items() if k != "add_layernorm"},
                         {k: v for k, v in before["own_moved"].items() if k != "add_layernorm"})
        text = self.tables.read_text()
        done = self.join("h100-sxm", "--renew", "add_layernorm,ropes")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no record has an op ropes; they have add_layernorm", done.stderr)
        self.assertEqual(self.tables.read_text(), text)
        alone = subprocess.run([sys.executable, SCRIPT, "--device", "h100-sxm", "--renew", "rope", self.record], capture_output=True,
                               text=True, check=False)
        self.assertEqual(alone.returncode, 2)
        self.assertIn("--renew needs --into", alone.stderr)

    def test_what_is_no_record_is_named(self):
        broken = self.folder / "broken.rooflm"
        broken.write_text("nothing")
        for path in (broken, self.folder / "missing.rooflm"):
            done = subprocess.run([sys.executable, SCRIPT, "--device", "h100-sxm", path], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, rf"^op_times: {path} is no record of a run: .*\n$")

    def test_devices_without_curves_are_named(self):
        for device in ("h200", "nonsense"):
            text = self.tables.read_text()
            done = self.join(device)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"has no curves of {device}, only of h100-sxm", done.stderr)
            self.assertEqual(self.tables.read_text(), text)


if __name__ == "__main__":
    unittest.main()
