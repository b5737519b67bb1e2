#!/usr/bin/env python3
"""serve and bench-serve from outside: a model over HTTP, its clients, its end.

Usage: test_serve.py BINARY [unittest options]"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request

from training_runs import TINY, TrainingRuns


class Serve(TrainingRuns):
    def setUp(self):
        super().setUp()
        self.ok("train", *TINY, "--data", self.data, "--out", self.out, "--steps", 4)

    def start(self, *arguments, **environment):
        """A server on a free port; its address."""
        server = subprocess.Popen([self.binary, "serve", "--model", str(self.out), "--port", "0", "--threads", "1", "--slots", "2",
                                   *map(str, arguments)], stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        for line in server.stderr:
            found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", line)
            if found:
                return server, f"http://127.0.0.1:{found[1]}"
        raise AssertionError("the server ended")

    def post(self, url, path, body, key=""):
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def test_answers_are_those_of_generate(self):
        expected = self.ok("generate", "--model", self.out, "--prompt", "the cat", "--tokens", 8, "--temperature", 0, "--threads", 1)
        server, url = self.start()
        status, answer = self.post(url, "/v1/completions", {"prompt": "the cat", "max_tokens": 8, "temperature": 0})
        self.assertEqual(status, 200, answer)
        self.assertEqual("the cat" + answer["choices"][0]["text"] + "\n", expected)
        self.assertEqual(answer["model"], "out")
        status, answer = self.post(url, "/v1/chat/completions", {"messages": [{"role": "user", "content": "the cat"}]})
        self.assertEqual(status, 400)
        self.assertIn("--chat-template", answer["error"]["message"])
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(30), 0)

    def test_a_signal_lets_what_was_begun_end(self):
        server, url = self.start("--chat-template", "plain")
        answers = []
        body = {"messages": [{"role": "user", "content": "the cat"}], "max_tokens": 900, "ignore_eos": True, "stop": None}
        client = threading.Thread(target=lambda: answers.append(self.post(url, "/v1/chat/completions", body)))
        client.start()
        while "rooflm:num_requests_running 1\n" not in urllib.request.urlopen(url + "/metrics").read().decode() and not answers:
            pass
        server.send_signal(signal.SIGINT)
        client.join()
        self.assertEqual(server.wait(30), 0)
        status, answer = answers[0]
        self.assertEqual(status, 200, answer)
        self.assertIn(answer["choices"][0]["finish_reason"], ("length", "stop"))

    def test_a_load_is_timed_and_recorded(self):
        server, url = self.start("--schedule", "fair", ROOFLM_API_KEY="secret")
        self.assertEqual(self.post(url, "/v1/completions", {"prompt": "a"})[0], 401)
        record, result = self.folder / "load.rooflm", self.folder / "load.json"
        load = ["bench-serve", "--url", url, "--api-key", "secret", "--requests", 6, "--prompt-tokens", "2-5", "--new-tokens", 4,
                "--users", "2,1", "--goodput", "ttft:60000,tpot:60000"]
        text = self.ok(*load, "--result", result, "-o", record)
        for line in ("Successful requests: +6", "Failed requests: +0", "Total generated tokens: +24", r"Median TTFT \(ms\):", r"P99 ITL \(ms\):"):
            self.assertRegex(text, line)
        written = json.loads(result.read_text())
        self.assertEqual((written["completed"], written["total_output_tokens"]), (6, 24))
        self.assertEqual(written["request_goodput"], written["request_throughput"])
        for i in range(6):
            self.assertAlmostEqual(written["latencies"][i], written["ttfts"][i] + sum(written["itls"][i]), places=6)
        loads = json.loads(self.ok("report", record, "--view", "serving", "--format", "json"))[0]["tables"][0]["rows"]
        self.assertEqual(len(loads), 1)
        self.assertAlmostEqual(loads[0]["requests_per_s"], written["request_throughput"], delta=0.01 * written["request_throughput"])
        self.ok("verify", record)
        two = self.ok(*load, "--rate", "50,100", "--max-concurrency", 1)
        self.assertEqual(two.count("Maximum request concurrency"), 2)
        server.kill()
        server.wait()
        self.fails(5, *load, says="/v1/models")

    def test_a_server_records_what_it_served(self):
        record = self.folder / "serve.rooflm"
        server, url = self.start("-o", record)
        self.ok("bench-serve", "--url", url, "--requests", 6, "--prompt-tokens", "2-5", "--new-tokens", 4, "--users", "2,1")
        gone = self.post(url, "/v1/completions", {"prompt": "a", "max_tokens": 0})
        self.assertEqual(gone[0], 400)
        deadline = time.monotonic() + 60
        while len(self.rows(record, "requests")) < 6 and time.monotonic() < deadline:
            time.sleep(0.2)
        server.kill()  # what ended more than a second ago is there
        server.wait()
        requests = self.rows(record, "requests")
        self.assertEqual([row["new_tokens"] for row in requests], 6 * [4])
        self.assertEqual({row["finish"] for row in requests}, {"length"})
        self.assertEqual(len({row["user"] for row in requests}), 2)
        for row in requests:
            self.assertLessEqual(row["queue_s"], row["ttft_s"])
            self.assertLessEqual(row["ttft_s"], row["latency_s"])
            self.assertAlmostEqual(row["latency_s"], row["ttft_s"] + 3 * row["tpot_s"], delta=0.01)
        batches = self.rows(record, "batches")
        self.assertEqual(sum(row["prefill_tokens"] for row in batches), sum(row["prompt_tokens"] for row in requests))
        self.assertEqual(sum(row["decode_tokens"] for row in batches), 6 * 3, "a prompt gives the first token")
        self.assertEqual(self.rows(record, "cells"), [], "what has a view of its own is not shown twice")
        load = self.rows(record, "serving")[0]
        self.assertEqual((load["model"], load["slots"], load["requests"]), ("out", 2, 6))
        self.ok("verify", record)

    def test_chunks_blocks_and_guesses_change_no_answer(self):
        body = {"prompt": "the cat the cat the", "max_tokens": 24, "temperature": 0, "ignore_eos": True}
        texts = []
        for options in (["--prefill-chunk", 0], ["--prefill-chunk", 2, "--kv-tokens", 64, "--seq", 64], ["--guess", 4]):
            server, url = self.start(*options)
            status, answer = self.post(url, "/v1/completions", body)
            self.assertEqual(status, 200, answer)
            texts.append(answer["choices"][0]["text"])
            metrics = urllib.request.urlopen(url + "/metrics").read().decode()
            guessed = int(re.search(r"^rooflm:spec_decode_num_draft_tokens_total (\d+)$", metrics, re.MULTILINE)[1])
            self.assertEqual(guessed > 0, "--guess" in options, metrics)
            server.kill()
            server.wait()
        self.assertEqual(texts, 3 * texts[:1])

    def rows(self, record, view):
        tables = json.loads(self.ok("report", record, "--view", view, "--format", "json"))[0]["tables"]
        return tables[0]["rows"] if tables else []

    def test_a_server_that_is_stopped_ends_its_record(self):
        record = self.folder / "serve.rooflm"
        server, url = self.start("-o", record)
        self.fails(3, "serve", "--model", self.out, "--port", 0, "-o", record, says=str(record))
        client = threading.Thread(target=lambda: self.post(url, "/v1/completions", {"prompt": "a", "max_tokens": 5, "ignore_eos": True}))
        client.start()
        client.join()
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(30), 0)
        self.assertEqual([row["new_tokens"] for row in self.rows(record, "requests")], [5])

    def test_wrong_options(self):
        for code, *arguments in [(2, "serve", "--model", "tiny"), (2, "serve", "--model", self.out, "--schedule", "fares"),
                                 (2, "serve", "--model", self.out, "--port", 70000), (2, "serve", "--model", self.out, "--slots", 0),
                                 (2, "serve", "--model", self.out, "--seq", 1), (2, "serve", "--model", self.out, "--chat-template", "chatmll"),
                                 (3, "serve", "--model", self.out, "--host", "192.0.2.1", "--port", 0), (2, "bench-serve", "--url", "localhost"),
                                 (2, "bench-serve", "--goodput", "ttfm:1"), (2, "bench-serve", "--percentiles", "101"),
                                 (2, "bench-serve", "--rate", "1,2", "--result", self.folder / "x.json"), (2, "bench-serve", "--chat"), (2, "serve", "--model", self.out, "--kv-tokens", 10),
                                 (2, "serve", "--model", self.out, "--guess", 33), (2, "serve", "--model", self.out, "--prefill-chunk", -1),
                                 (2, "serve", "--model", self.out, "--guess", 2, "--prefill-chunk", 0)]:
            with self.subTest(arguments=arguments):
                self.fails(code, *arguments)
        self.ok("serve", "--model", self.out, "--dry-run")

    def fails(self, code, *arguments, says=""):
        result = self.run_rooflm(*arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        lines = [line for line in result.stderr.splitlines() if line.startswith("rooflm: ")]
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertIn(says, lines[0])


if __name__ == "__main__":
    TrainingRuns.binary = sys.argv.pop(1)
    unittest.main()
