# SPDX-License-Identifier: Apache-2.0
"""What gpu_check says about results that are made up here, and that every script of it can be read."""
import ast
import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "gpu"))

import gpu_check  # noqa: E402
import report  # noqa: E402
import runs  # noqa: E402
import steps  # noqa: E402


def attention(forward, backward):
    return {"head_dim": 128, "seq": 4096, "batch": 4, "heads": 32, "kv_heads": 32, "forward_tflops": forward,
            "backward_tflops": backward}


BENCH = {
    "gemm": [{"layer": "square 8192", "product": "forward", "m": 8192, "n": 8192, "k": 8192, "tflops": 780.0,
              "cublas_tflops": 800.0, "cublas_best_tflops": 810.0, "of_cublas": 0.975}],
    "attention": [attention(420.0, 300.0)],
    "memory": [{"kernel": "device copy", "gb_per_s": 4000.0, "of_copy": 1.0},
               {"kernel": "add", "gb_per_s": 3000.0, "of_copy": 0.75}],
    "copies": [{"what": "link", "gb_per_s": 50.0}, {"what": "copy_h2d", "gb_per_s": 49.0, "of_link": 0.98}],
}


def document(*details):
    named = [{"name": name, "kind": "check", "outcome": "passed", "seconds": 1.0, "about": "", "details": found}
             for name, found in details]
    gpu = {"name": "Some GPU", "memory_bytes": 2**36, "capability": "9.0", "driver_cuda": "13.0", "gpus": 1}
    made = {"date": "2026-01-01", "commit": "", "gpu": gpu, "cores": 16, "seconds": 9.0, "steps": named}
    return {**made, "bars": report.bars(made)}


class Scripts(unittest.TestCase):
    def test_python_files_can_be_read(self):
        files = [*(ROOT / "bench").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]
        self.assertGreater(len(files), 5)
        for path in files:
            ast.parse(path.read_text(), str(path))

    def test_shell_files_can_be_read(self):
        for path in (ROOT / "scripts").glob("*.sh"):
            self.assertEqual(subprocess.run(["bash", "-n", str(path)]).returncode, 0, path)


class Bars(unittest.TestCase):
    def test_shares_are_compared_with_what_is_wanted(self):
        found = {b["bar"]: b for b in document(("bench", BENCH))["bars"]}
        self.assertTrue(found["products, of cuBLAS called directly"]["met"])
        # 420 of 800, 300 of 800, by hand.
        self.assertEqual(found["attention forward, of the bf16 product rate"]["measured"], 0.525)
        self.assertFalse(found["attention backward, of the bf16 product rate"]["met"])
        self.assertEqual(found["memory-bound kernels, of copy bandwidth"]["of"], "add")
        self.assertIsNone(found["throughput kept at 16k tokens a step"]["met"])

    def test_the_report_holds_every_section(self):
        place = {"tokens": 16384, "place": "host", "micro_batch": 8, "step_ms": 400.0, "tokens_per_s": 40960.0,
                 "kept": 0.91, "wait_ms": {"nvme": 0, "copy": 1, "optimizer": 2},
                 "gb_per_s": {"h2d": 50.0, "d2h": 50.0, "nvme_read": 0, "nvme_write": 0}}
        curve = {"model": "llama-1b", "points": [place, {"tokens": 4096, "place": "nvme", "note": "no time left"}]}
        torch = {"torch": "2.0", "attention": [attention(600.0, 500.0)]}
        text = report.markdown(document(("bench", BENCH), ("PyTorch attention", torch), ("tokens curve", curve)))
        for words in ("# headrace on Some GPU", "**no**", "| 128 | 4096 | 32 / 32 | 420 | 600 | 300 | 500 |",
                      "| 16384 | host | 8 | 400.0 | 40960 | 0.91 |", "no time left"):
            self.assertIn(words, text)

    def test_nothing_measured_is_said(self):
        text = report.markdown(document())
        self.assertEqual(text.count("| not measured | not measured |"), 6)


class TestReports(unittest.TestCase):
    def read(self, *tests):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.json"
            path.write_text(json.dumps({"testsuites": [{"name": "Cuda/Suite", "testsuite": list(tests)}]}))
            return steps.read_report(path, "some_test")

    def test_failures_and_skips_are_told_apart(self):
        good = {"name": "A", "status": "RUN", "result": "COMPLETED"}
        skip = {"name": "B", "status": "RUN", "result": "SKIPPED"}
        bad = {"name": "C", "status": "RUN", "result": "COMPLETED", "failures": [{"failure": "two is\nnot one"}]}
        self.assertEqual(steps.judged([self.read(good, skip)]),
                         {"tests": 2, "skipped": ["some_test: Cuda/Suite.B"]})
        with self.assertRaisesRegex(runs.Failed, "1 of 3 tests failed: some_test: Cuda/Suite.C: two is not one"):
            steps.judged([self.read(good, skip, bad)])

    def test_only_skips_are_a_failure(self):
        with self.assertRaisesRegex(runs.Failed, "no test was run"):
            steps.judged([self.read({"name": "B", "status": "RUN", "result": "SKIPPED"})])


def check_of(minutes):
    """One that has just begun, however long the test takes."""
    check = gpu_check.GpuCheck(types.SimpleNamespace(build=ROOT, minutes=minutes))
    check.work = pathlib.Path(tempfile.gettempdir())
    check.elapsed = lambda: 0.0
    return check


class Steps(unittest.TestCase):
    def outcome(self, function, minutes=1.0, needs=10):
        return check_of(minutes).perform(steps.Step("a step", "check", 90, needs, function, ""))

    def test_every_end_of_a_step_is_recorded(self):
        def fails(check, limit):
            raise runs.Failed("for a reason", {"some": "details"})

        def is_not_here(check, limit):
            raise steps.NotHere("no such tool")
        self.assertEqual(self.outcome(lambda check, limit: {"a": limit})["outcome"], "passed")
        failed = self.outcome(fails)
        self.assertEqual((failed["outcome"], failed["reason"], failed["details"]),
                         ("failed", "for a reason", {"some": "details"}))
        self.assertEqual(self.outcome(is_not_here)["outcome"], "not here")
        self.assertEqual(self.outcome(lambda check, limit: json.loads("{"))["outcome"], "failed")

    def test_a_step_without_half_of_its_time_is_not_begun(self):
        # 60 s are left: less than half of 122 s, not of 118 s.
        result = self.outcome(lambda check, limit: self.fail("begun"), needs=122)
        self.assertEqual(result["outcome"], "no time")
        for words in ("60 s of 60 s left, it needs 122 s", "--minutes N", "--only 'a step'"):
            self.assertIn(words, result["reason"])
        self.assertEqual(self.outcome(lambda check, limit: {}, needs=118)["outcome"], "passed")

    def test_no_time_is_in_the_report_and_no_success(self):
        result = self.outcome(lambda check, limit: {}, needs=122)
        text = report.markdown({**document(), "steps": [result]})
        self.assertIn("| a step | no time | 0 s |", text)
        self.assertIn("--minutes N", text)
        self.assertFalse(gpu_check.all_passed([result]))
        self.assertTrue(gpu_check.all_passed([{**result, "kind": "measurement"},
                                              {"kind": "check", "outcome": "not here"}]))

    def test_the_commands_of_a_step_share_its_time(self):
        # 1.2 s are left for the step; its command may not have the minute it asks for.
        result = self.outcome(lambda check, limit: check.command(["sleep", "60"], 60), minutes=0.02, needs=1)
        self.assertRegex(result["reason"], "no end within 1 s")

    def test_what_a_hanging_command_has_started_ends_with_it(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "pid"
            inner = f"import runs; runs.run(['sh', '-c', 'echo $$ >{file}; exec sleep 60'], 60)"
            code = f"import sys; sys.path.insert(0, {str(ROOT / 'bench' / 'gpu')!r}); {inner}"
            with self.assertRaisesRegex(runs.Failed, "no end within"):
                runs.run([sys.executable, "-B", "-c", code], 3)
            status = pathlib.Path(f"/proc/{int(file.read_text())}/status")
            for _ in range(100):  # killed at once, gone when somebody has waited for it
                if not status.exists() or "State:\tZ" in status.read_text():
                    return
                time.sleep(0.05)
            self.fail("it lives on")

    def test_a_command_that_hangs_is_ended(self):
        with self.assertRaisesRegex(runs.Failed, "no end within 1 s"):
            runs.run(["sleep", "60"], 1)


class Builds(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name)

    def make(self, *programs):
        for program in programs:
            path = self.build / program
            path.parent.mkdir(exist_ok=True)
            path.touch()

    def missing(self, **options):
        """What a step says when its program is not there."""
        check = gpu_check.GpuCheck(types.SimpleNamespace(**{"build": None, "build_given": "", "only": None, **options}))
        check.build = self.build
        with self.assertRaises(runs.Failed) as raised:
            check.program("tests/cuda_kernels_test")
        return str(raised.exception)

    def test_one_step_uses_the_build_that_is_there(self):
        self.make("tests/cuda_kernels_test")
        check = gpu_check.GpuCheck(types.SimpleNamespace(build=None, only=["kernels"]))
        self.assertEqual(check.build, ROOT / "build-gpu")
        check.build = self.build
        self.assertEqual(check.program("tests/cuda_kernels_test"), self.build / "tests" / "cuda_kernels_test")

    def test_a_missing_program_is_named_with_the_remedy(self):
        self.assertIn("tests/cuda_kernels_test is not there: run without --only once, or give a build (--build DIR)",
                      self.missing(only=["kernels"]))
        self.assertNotIn("--only", self.missing())
        given = self.missing(only=["kernels"], build=self.build, build_given="HEADRACE_BUILD=/there")
        self.assertEqual(given, "HEADRACE_BUILD=/there: no tests/cuda_kernels_test in it")

    def test_a_given_build_needs_no_time(self):
        needs = {step.name: step.needs for step in gpu_check.chosen_steps(
            types.SimpleNamespace(build=self.build, only=["configure", "build", "kernels"]))}
        self.assertEqual((needs["configure"], needs["build"]), (0, 0))
        self.assertGreater(needs["kernels"], 0)

    def test_what_is_no_packed_build_is_a_usage_error(self):
        self.make("file")
        done = subprocess.run([sys.executable, "-B", gpu_check.__file__, "--build", self.build / "file"],
                              stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("file: neither a folder nor a whole packed build", done.stderr)

    def test_an_error_names_where_the_build_was_given(self):
        for arguments, variable, message in ((["--build", "/not-here"], "/ignored", "--build /not-here: no such"),
                                             ([], "/not-here", "HEADRACE_BUILD=/not-here: no such")):
            done = subprocess.run([sys.executable, "-B", gpu_check.__file__, *arguments], stderr=subprocess.PIPE,
                                  text=True, env={**os.environ, "HEADRACE_BUILD": variable})
            self.assertEqual(done.returncode, 2)
            self.assertIn(message, done.stderr)

    def test_a_build_without_nccl_can_be_packed(self):
        needed = ["headrace", "gpu_bench", "tests/cuda_kernels_test", "tests/cuda_train_test",
                  "tests/cuda_device_test", "tests/cuda_gemm_test"]
        nccl = "tests/nccl_communicator_test"
        self.make(*needed)
        self.assertCountEqual(gpu_check.packed_programs(self.build), needed)
        self.make(nccl)
        self.assertCountEqual(gpu_check.packed_programs(self.build), [*needed, nccl])

    def test_a_build_without_another_program_is_not_packed(self):
        self.make("headrace", "gpu_bench", "tests/cuda_train_test", "tests/cuda_device_test", "tests/cuda_gemm_test")
        with self.assertRaisesRegex(SystemExit, "gpu_check: tests/cuda_kernels_test not built in"):
            gpu_check.packed_programs(self.build)


class Sanitized(unittest.TestCase):
    def test_every_kind_of_kernel_has_a_small_test_that_exists(self):
        kinds = set()
        for name in steps.SANITIZED:
            suite, test, case = re.fullmatch(r"(\w+)\.(\w+)/(small\w*)_(?:bf16|fp32)", name).groups()
            for path in (ROOT / "tests" / "cuda").glob("*_test.cpp"):
                text = path.read_text()
                cases = text.partition(f"Cuda, {suite},")[2].partition(";")[0]
                if f"TEST_P({suite}, {test})" in text and f'{{"{case}", ' in cases:
                    kinds.add(path.name)
                    break
            else:
                self.fail(f"no test is called {name}")
        self.assertEqual(kinds, {"attention_test.cpp", "gemm_test.cpp", "norm_test.cpp", "pointwise_test.cpp",
                                 "token_rows_test.cpp"})

    def test_the_bench_comes_first_and_the_curve_takes_what_is_left(self):
        names = [step.name for step in steps.STEPS]
        self.assertLess(names.index("bench"), names.index("memcheck"))
        self.assertLess(names.index("racecheck"), names.index("tokens curve"))
        self.assertEqual(names[-1], "tokens curve")


class Times(unittest.TestCase):
    def step(self, limit, needs):
        return steps.Step("a step", "check", limit, needs, None, "")

    def test_a_step_leaves_the_later_ones_what_they_need(self):
        build, kernels, curve = self.step(300, 150), self.step(90, 40), self.step(400, 90)
        # 480 - 40 - 90 = 350 is above its limit; 400 - 40 - 90 = 270 is not; 200 - 90 = 110 is above 90.
        self.assertEqual(steps.time_for(build, [kernels, curve], 480), 300)
        self.assertEqual(steps.time_for(build, [kernels, curve], 400), 270)
        self.assertEqual(steps.time_for(kernels, [curve], 200), 90)
        self.assertEqual(steps.time_for(curve, [], 120), 120)

    def test_the_first_steps_come_first_when_there_is_not_enough(self):
        kernels, curve = self.step(90, 40), self.step(400, 90)
        # 100 - 90 = 10 is below the 40 it needs; of 30 it gets all.
        self.assertEqual(steps.time_for(kernels, [curve], 100), 40)
        self.assertEqual(steps.time_for(kernels, [curve], 30), 30)

    def test_every_step_has_its_turn_in_eight_minutes_however_slow_the_others_are(self):
        self.assertLessEqual(sum(step.needs for step in steps.STEPS), 480)
        left = 480
        for index, step in enumerate(steps.STEPS):
            seconds = steps.time_for(step, steps.STEPS[index + 1:], left)
            self.assertGreaterEqual(seconds, step.needs, step.name)
            self.assertGreaterEqual(step.limit, step.needs, step.name)
            left -= seconds  # all of it
        self.assertGreaterEqual(left, 0)

    def test_a_slow_step_runs_into_the_limit_that_later_ones_set(self):
        limits, printed = {}, io.StringIO()

        def step(name, needs):
            return steps.Step(name, "check", 90, needs, lambda check, limit: limits.update({name: limit}), "")
        with contextlib.redirect_stdout(printed):
            check_of(minutes=1).run([step("slow", 5), step("next", 20), step("too long", 130)], lambda: None)
        # Of 60 s, which are too few for 130: 5 s for the first, 20 s for the second; half of 130 s is not there.
        self.assertEqual(limits, {"slow": 5, "next": 20})
        self.assertIn("no time: 60 s of 60 s left, it needs 130 s", printed.getvalue())
        check_of(minutes=1).perform(step("slow", 5), [step("next", 20)])
        self.assertEqual(limits["slow"], 40)


if __name__ == "__main__":
    unittest.main()
